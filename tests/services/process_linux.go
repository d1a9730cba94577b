package services

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// attributes puts the command into a process group of its own, so that Ctrl-C in a terminal reaches the tests first
// and the servers only once they are no longer needed.
func (c command) attributes() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: c.deathSignal}
	if c.account != nil {
		attributes.Credential = &syscall.Credential{Uid: c.account.uid, Gid: c.account.gid}
	}
	return attributes
}

func signalGroup(leader *os.Process, signal syscall.Signal) {
	_ = syscall.Kill(-leader.Pid, signal)
}

func groupAlive(leader *os.Process) bool {
	return syscall.Kill(-leader.Pid, 0) == nil
}

// account is an unprivileged user: servers refuse to run as root.
type account struct{ uid, gid uint32 }

// serverAccount is the user that a package made for its server. It is nil, the caller's own, for anyone but root.
func serverAccount(name string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("services: root must run this server as another user, and there is no user %q: %w", name, err)
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &account{uid: uint32(uid), gid: uint32(gid)}, nil
}

// become is the command line that turns root into the account.
func (a *account) become() []string {
	return []string{"setpriv", fmt.Sprintf("--reuid=%d", a.uid), fmt.Sprintf("--regid=%d", a.gid), "--clear-groups"}
}

// own makes a new directory that belongs to the account.
func (a *account) own(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil || a == nil {
		return err
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}
