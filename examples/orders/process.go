package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// roleFlag makes this program one of its own processes. It is for the program itself.
const roleFlag = "-role"

// process is a child: this program in another role. It gets its assignment on its standard input
// and works until that ends, which it does when the parent closes it and also when the parent dies,
// however it dies. It closes its standard output when it is at work.
type process struct {
	role  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   *tail

	working chan struct{} // closed when it is at work
	ended   chan struct{} // closed when it has ended
	err     error         // why, to be read after ended
}

func startProcess(cfg config, role string, given assignment) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{role: role, log: &tail{}, working: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = exec.Command(program, roleFlag, role)
	p.cmd.Stderr = p.log
	if cfg.verbose {
		p.cmd.Stderr = io.MultiWriter(p.log, cfg.stderr)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	go func() {
		// A child that dies early leaves a broken pipe; how it ended says more than that.
		_ = json.NewEncoder(p.stdin).Encode(given)
		_, _ = io.Copy(io.Discard, stdout)
		close(p.working)
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) ready() bool    { return closed(p.working) }
func (p *process) finished() bool { return closed(p.ended) }

// kill ends the process by SIGKILL, which it cannot see coming, and reports whether it was that
// which ended it.
func (p *process) kill() bool {
	err := p.cmd.Process.Kill()
	<-p.ended
	return err == nil && p.err != nil
}

// finish asks the process to come to an end.
func (p *process) finish() { _ = p.stdin.Close() }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// tail keeps the end of what a process wrote, for the case that it fails.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(text []byte) (int, error) {
	const bound = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-bound):]
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ToValidUTF8(t.text, nil))
}
