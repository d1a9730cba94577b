package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// command is a program with everything it runs under. A local server inherits nothing: a PGPORT or ERL_FLAGS of the
// caller's shell would change it.
type command struct {
	path      string
	arguments []string
	directory string
	variables []string // the whole environment
	account   *account // nil: the caller's own

	stopSignal  syscall.Signal // asks for a clean end
	crashSignal syscall.Signal // ends it as a crash does
	deathSignal syscall.Signal // sent by the kernel when this process dies without having stopped it
}

func (c command) prepare(log *os.File) *exec.Cmd {
	cmd := exec.Command(c.path, c.arguments...)
	cmd.Dir, cmd.Env = c.directory, c.variables
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = c.attributes()
	return cmd
}

// finish runs the command to its end.
func (c command) finish(ctx context.Context, log string) error {
	p, err := c.launch(log)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.crash())
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", p, p.err)
	}
	return nil
}

// process is a command that was started.
type process struct {
	command command
	cmd     *exec.Cmd
	done    chan struct{} // closed once it has ended
	err     error         // how it ended, valid after done
}

func (c command) launch(log string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	p := &process{command: c, cmd: c.prepare(file), done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the thread that forked ends, not the process: this thread is kept
		// from ending, and from being lent to other goroutines, for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		_ = file.Close()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.path, err)
	}
	return p, nil
}

func (p *process) String() string { return filepath.Base(p.command.path) }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop asks for a clean end and insists when there is none in time.
func (p *process) stop() error {
	if !p.ended() {
		_ = p.cmd.Process.Signal(p.command.stopSignal)
	}
	return p.gone()
}

// crash ends the process and what it started at once.
func (p *process) crash() error {
	signalGroup(p.cmd.Process, p.command.crashSignal)
	return p.gone()
}

// gone returns when the process and every other process of its group have ended.
func (p *process) gone() error {
	insist := time.NewTimer(patience)
	defer insist.Stop()
	select {
	case <-p.done:
	case <-insist.C:
		signalGroup(p.cmd.Process, syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("services: %s did not stop within %s and was killed", p, patience)
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for groupAlive(p.cmd.Process) {
		select {
		case <-look.C:
		case <-insist.C:
			signalGroup(p.cmd.Process, syscall.SIGKILL)
			return fmt.Errorf("services: processes of %s were still there after %s and were killed", p, patience)
		}
	}
	return nil
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// quote makes one word of a POSIX shell out of any text.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// script is the command as a shell script that takes further arguments.
func (c command) script() string {
	words := append([]string{"env", "-i"}, c.variables...)
	if c.account != nil {
		words = append(c.account.become(), words...)
	}
	words = append(append(words, c.path), c.arguments...)
	for i, word := range words {
		words[i] = quote(word)
	}
	return fmt.Sprintf("#!/bin/sh\ncd %s && exec %s \"$@\"\n", quote(c.directory), strings.Join(words, " "))
}
