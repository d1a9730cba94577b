//go:build !linux

package main

import (
	"os"
	"os/exec"
)

func isolate(cmd *exec.Cmd, _ bool) (pass func(os.Signal)) {
	return func(s os.Signal) { _ = cmd.Process.Signal(s) }
}

func signalNumber(*os.ProcessState) (int, bool) { return 0, false }
