//go:build !linux

package services

import (
	"errors"
	"os"
	"syscall"
)

// Local servers need Linux: the kernel ends them there when this process is killed. Elsewhere the environment and
// containers serve, and this file keeps the tests compiling.

func (c command) attributes() *syscall.SysProcAttr { return nil }

func signalGroup(leader *os.Process, _ syscall.Signal) { _ = leader.Kill() }

func groupAlive(*os.Process) bool { return false }

type account struct{}

func serverAccount(string) (*account, error) {
	return nil, errors.New("services: local servers need Linux; use a container or name a server in the environment")
}

func (a *account) become() []string { return nil }

func (a *account) own(path string) error { return os.MkdirAll(path, 0o700) }
