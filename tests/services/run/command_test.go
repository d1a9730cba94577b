package main

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExitCodeIsPassedOn(t *testing.T) {
	for _, c := range []struct {
		script string
		code   int
	}{{"exit 0", 0}, {"exit 3", 3}, {"kill -TERM $$", 143}, {`test "$GIVEN" = yes`, 0}} {
		code, err := runCommand([]string{"/bin/sh", "-c", c.script}, []string{"GIVEN=yes"}, nil)
		require.NoError(t, err)
		assert.Equal(t, c.code, code, c.script)
	}
}

func TestCommandThatIsNotThere(t *testing.T) {
	code, err := runCommand([]string{"/nonexistent"}, nil, nil)
	require.Error(t, err)
	assert.Equal(t, 127, code)
}

func TestSignalReachesTheWholeGroup(t *testing.T) {
	// The outer shell waits for the inner one whatever it gets, as "go test" does for its tests.
	cmd := exec.Command("/bin/sh", "-c", `trap : TERM; sh -c 'trap "exit 0" TERM; echo ready; while :; do sleep 0.1; done'`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	pass := isolate(cmd, false)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	pass(syscall.SIGTERM)
	require.NoError(t, cmd.Wait())
}

func TestNullDeviceIsNoTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	assert.False(t, terminal(null))
	require.NoError(t, null.Close())
	assert.False(t, terminal(null))
}
