package services

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFreePortsAreDistinctAndCanBeListenedOn(t *testing.T) {
	ports, err := freePorts(20)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range ports {
		assert.False(t, seen[port], "port %d twice", port)
		seen[port] = true
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
}

func TestEnvironmentWinsAndMustAnswer(t *testing.T) {
	t.Setenv(AMQPVariable, "amqp://guest:secret@127.0.0.1:1/")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one look is enough: the port refuses
	running, err := Start(ctx, Options{Only: []string{"rabbitmq"}})
	require.Nil(t, running)
	require.ErrorContains(t, err, AMQPVariable+" is set but the server does not answer")
	assert.NotContains(t, err.Error(), "secret")
}

func TestUnknownServerIsRefused(t *testing.T) {
	_, err := Start(t.Context(), Options{Only: []string{"oracle"}})
	require.EqualError(t, err, `services: no server is called "oracle"; there are postgres, rabbitmq`)
}

func TestMissingServersAreOneLineWithThreeWaysOut(t *testing.T) {
	absent := func(k kind) kind {
		k.local = func(string) (*node, error) { return nil, errMissing }
		return k
	}
	_, err := localServers(t.Context(), t.TempDir(), []kind{absent(postgres), absent(rabbitmq)}, Options{})
	require.EqualError(t, err, "services: no postgres, no rabbitmq (installing is left to the one who runs the tests): "+
		"set WATERMILL_INBOX_POSTGRES_DSN and WATERMILL_INBOX_AMQP_URL to one that runs, "+
		"or start Docker with its compose plugin, or install it with `apt-get install postgresql rabbitmq-server`")
}

func TestDockerClientWithoutEngineIsNoContainer(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	require.EqualError(t, composeAnswers(t.Context()), "no Docker engine answers")

	// The client prints nothing for the engine's version and still exits 0 in some releases.
	client := "#!/bin/sh\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "docker"), []byte(client), 0o755))
	require.EqualError(t, composeAnswers(t.Context()), "no Docker engine answers")

	client = "#!/bin/sh\n[ \"$1\" = info ] && echo 28.0.0\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "docker"), []byte(client), 0o755))
	require.EqualError(t, composeAnswers(t.Context()), "the Docker client has no compose plugin")

	client = "#!/bin/sh\necho 28.0.0\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "docker"), []byte(client), 0o755))
	require.NoError(t, composeAnswers(t.Context()))
}

func TestAbandonedDirectoriesAreDeletedAndLiveOnesKept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	live, err := newDirectory()
	require.NoError(t, err)
	abandoned, err := newDirectory()
	require.NoError(t, err)
	require.NoError(t, abandoned.lock.Close()) // as the kernel does for a process that was killed

	removeAbandoned()
	assert.DirExists(t, live.path)
	assert.NoDirExists(t, abandoned.path)
	require.NoError(t, live.remove())
	assert.NoDirExists(t, live.path)
}

func TestScriptPassesItsArgumentsOnWhateverTheyHold(t *testing.T) {
	c := command{path: "/bin/sh", arguments: []string{"-c", `printf '%s|' "$GREETING" "$@"`, "name"}, directory: t.TempDir(),
		variables: []string{"GREETING=it's $HOME"}}
	path, err := writeControl(c.directory, "control", c.script())
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), path, "a b", "*").CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "it's $HOME|a b|*|", string(out))
}

func TestFailedStartSaysWhatTheServerPrintedAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	shell := func(line string) command {
		return command{path: "/bin/sh", arguments: []string{"-c", line}, directory: dir}
	}
	helper := shell("exec sleep 1000")
	helper.stopSignal = 15
	s := &Server{
		kind: kind{name: "example", ping: func(context.Context, string) error { return assert.AnError }},
		node: &node{log: filepath.Join(dir, "log"), run: []command{helper, shell("echo the reason; exit 3")}},
	}
	err := s.Start(t.Context())
	require.ErrorContains(t, err, "services: example did not start: sh ended by itself (exit status 3); it printed:\nthe reason")
	assert.Empty(t, s.running)
}
