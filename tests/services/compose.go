package services

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed compose.yaml
var composeFile []byte

// composeAnswers says why containers cannot be used, or nil. A client without an engine is common.
func composeAnswers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	version, err := docker(ctx, "info", "--format", "{{.ServerVersion}}")
	if err != nil || strings.TrimSpace(version) == "" {
		return errors.New("no Docker engine answers")
	}
	if _, err := docker(ctx, "compose", "version"); err != nil {
		return errors.New("the Docker client has no compose plugin")
	}
	return nil
}

func docker(ctx context.Context, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", arguments...)
	var out, printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &printed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", arguments[0], err, tail(printed.String(), 1))
	}
	return out.String(), nil
}

// composeServers makes the containers, pulling what is missing, but does not start them yet. It fails with nothing
// left when an image cannot be had, so that local binaries can serve.
func composeServers(ctx context.Context, dir string, wanted []kind) ([]*Server, error) {
	file := filepath.Join(dir, "compose.yaml")
	if err := os.WriteFile(file, composeFile, 0o644); err != nil {
		return nil, err
	}
	path, err := exec.LookPath("docker")
	if err != nil {
		return nil, err
	}
	var servers []*Server
	for _, k := range wanted {
		n, err := composeNode(dir, file, path, k)
		if err == nil {
			servers = append(servers, &Server{kind: k, node: n, URL: n.url, Control: n.control})
			err = n.prepare(ctx)
		}
		if err != nil {
			said, _ := os.ReadFile(filepath.Join(dir, k.name+".log"))
			err = fmt.Errorf("%w: %s", err, tail(string(said), 1))
			for _, server := range servers {
				err = errors.Join(err, server.last())
			}
			return nil, err
		}
	}
	return servers, nil
}

// composeNode is one service of the file as a project of its own, so that each is stopped and deleted apart.
func composeNode(dir, file, path string, k kind) (*node, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	project := filepath.Base(dir) + "-" + k.name
	compose := func(arguments ...string) command {
		return command{
			path: path, directory: dir,
			arguments: append([]string{"compose", "--project-name", project, "--file", file}, arguments...),
			// In the foreground, compose stops its container when it is asked to end: also by the kernel, when this
			// process was killed.
			stopSignal: syscall.SIGTERM, crashSignal: syscall.SIGTERM, deathSignal: syscall.SIGTERM,
			variables: append(os.Environ(), fmt.Sprintf("%s_PORT=%d", strings.ToUpper(k.name), ports[0])),
		}
	}
	kill := compose("kill", k.name)
	control := compose(append([]string{"exec", "-T"}, k.containerControl...)...)
	control.variables = nil
	for _, name := range []string{"PATH", "HOME", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT"} {
		control.variables = append(control.variables, name+"="+os.Getenv(name))
	}
	script, err := writeControl(dir, k.name+"-control", control.script())
	if err != nil {
		return nil, err
	}
	return &node{
		url: k.url(ports[0]), control: script, log: filepath.Join(dir, k.name+".log"),
		setup:    []command{compose("create", k.name)},
		run:      []command{compose("up", k.name)},
		kill:     &kill,
		teardown: []command{compose("down", "--volumes")},
	}, nil
}
