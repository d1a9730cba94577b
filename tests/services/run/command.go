package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// runCommand runs the command in the foreground and passes on its exit code, and to it the signals that arrive.
func runCommand(arguments, variables []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(arguments[0], arguments[1:]...)
	cmd.Env = append(os.Environ(), variables...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	shared := terminal(os.Stdin)
	pass := isolate(cmd, shared)
	if err := cmd.Start(); err != nil {
		return 127, fmt.Errorf("services: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	var insist <-chan time.Time
	for {
		select {
		case err := <-done:
			return exitCode(err)
		case s := <-signals:
			// In a terminal, Ctrl-C has reached the command already: it shares our process group.
			if !shared || s != os.Interrupt {
				pass(s)
			}
			insist = time.After(30 * time.Second)
		case <-insist:
			pass(os.Kill)
		}
	}
}

// exitCode is what a shell would report: 128 and the signal's number for a command that a signal ended.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if err == nil {
		return 0, nil
	}
	if !errors.As(err, &exit) {
		return 1, err
	}
	if number, ok := signalNumber(exit.ProcessState); ok {
		return 128 + number, nil
	}
	return exit.ExitCode(), nil
}

// terminal reports whether a person sits at the file: a character device other than the null device.
func terminal(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
