package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// isolate decides what a signal reaches. In a terminal the command shares our process group, so that it may read from
// the terminal. Elsewhere it gets a group of its own and the signal goes to all of it: "go test" and "go run" do not
// pass on what they get. If this process is killed, the kernel ends the command, as it does the servers.
func isolate(cmd *exec.Cmd, shared bool) (pass func(os.Signal)) {
	runtime.LockOSThread() // the kernel watches the thread that starts the command: it must last
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !shared, Pdeathsig: syscall.SIGTERM}
	if shared {
		return func(s os.Signal) { _ = cmd.Process.Signal(s) }
	}
	return func(s os.Signal) {
		if number, ok := s.(syscall.Signal); ok {
			_ = syscall.Kill(-cmd.Process.Pid, number)
		}
	}
}

func signalNumber(state *os.ProcessState) (int, bool) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, false
	}
	return int(status.Signal()), true
}
