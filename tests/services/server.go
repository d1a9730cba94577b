package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// ErrNotOurs is returned when a server that was named in the environment is asked to stop or start.
var ErrNotOurs = errors.New("services: this server was named in the environment and is not ours to stop or start")

// kind is one sort of server: where its address is looked for, how it is run, how one knows that it answers.
type kind struct {
	name     string // also the service's name in compose.yaml
	variable string // environment variable that carries its URL
	control  string // environment variable that carries the path of its control script
	debian   string // package that brings it
	url      func(port int) string
	// ping makes one round trip as a client does.
	ping func(ctx context.Context, url string) error
	// local prepares a node that runs the machine's own binaries below dir. It returns errMissing when there are none.
	local func(dir string) (*node, error)
	// containerControl is what follows "docker compose exec" to reach the same tool as the local control script.
	containerControl []string
}

// node is how one server is run: data, so that containers and local binaries share everything else.
type node struct {
	url      string
	control  string    // path of the control script
	log      string    // path of the file that takes what the commands print
	setup    []command // run to their end, once, before the first start
	run      []command // run side by side, started in this order and stopped in the opposite one
	kill     *command  // run to its end in place of the commands' crash signals
	teardown []command // run to their end, once, after the last stop
}

// prepare runs the setup if nobody has yet.
func (n *node) prepare(ctx context.Context) error {
	for _, c := range n.setup {
		if err := c.finish(ctx, n.log); err != nil {
			return err
		}
	}
	n.setup = nil
	return nil
}

// Server is one server that answered when Start returned. Its methods are not for concurrent use.
type Server struct {
	// URL is its address with the rights of a superuser.
	URL string
	// Control is a script that runs the server's own tool (pg_ctl, rabbitmqctl) against it. Empty when it is not ours.
	Control string

	kind    kind
	node    *node // nil: not ours
	running []*process
}

// Name is the name by which Options.Only and Running.Server know it.
func (s *Server) Name() string { return s.kind.name }

// Start starts a stopped server again, with the address and the data it had, and returns when it answers.
func (s *Server) Start(ctx context.Context) error {
	if s.node == nil {
		return ErrNotOurs
	}
	if len(s.running) > 0 {
		return fmt.Errorf("services: %s runs already", s.Name())
	}
	for _, c := range s.node.run {
		p, err := c.launch(s.node.log)
		if err != nil {
			return s.failed(err)
		}
		s.running = append(s.running, p)
	}
	if err := s.answers(ctx, patience); err != nil {
		return s.failed(err)
	}
	return nil
}

// Stop shuts the server down cleanly: clients are disconnected, what was committed stays.
func (s *Server) Stop() error { return s.end((*process).stop) }

// Kill ends the server as a crash does: nothing is flushed, and the next Start has to recover.
func (s *Server) Kill() error {
	if s.node != nil && s.node.kill != nil {
		if err := s.node.kill.finish(context.Background(), s.node.log); err != nil {
			return err
		}
	}
	return s.end((*process).crash)
}

func (s *Server) end(how func(*process) error) error {
	if s.node == nil {
		return ErrNotOurs
	}
	var failures []error
	for i := len(s.running) - 1; i >= 0; i-- {
		failures = append(failures, how(s.running[i]))
	}
	s.running = nil
	return errors.Join(failures...)
}

// Ctl runs the control script with these arguments and returns what it printed.
func (s *Server) Ctl(ctx context.Context, arguments ...string) (string, error) {
	if s.Control == "" {
		return "", ErrNotOurs
	}
	out, err := exec.CommandContext(ctx, s.Control, arguments...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("services: %s %v: %w: %s", s.Control, arguments, err, out)
	}
	return string(out), nil
}

// first brings the server up for the first time. A server of somebody else only has to answer.
func (s *Server) first(ctx context.Context, log io.Writer) error {
	began := time.Now()
	if s.node == nil {
		if err := s.answers(ctx, 10*time.Second); err != nil {
			return fmt.Errorf("services: %s is set but the server does not answer; start it or unset the variable: %w", s.kind.variable, err)
		}
		_, _ = fmt.Fprintf(log, "services: %s from %s\n", s.Name(), s.kind.variable)
		return nil
	}
	if err := s.node.prepare(ctx); err != nil {
		return s.failed(err)
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(log, "services: %s at %s after %.1fs\n", s.Name(), s.URL, time.Since(began).Seconds())
	return nil
}

// last stops the server for good.
func (s *Server) last() error {
	if s.node == nil {
		return nil
	}
	failures := []error{s.Stop()}
	for _, c := range s.node.teardown {
		failures = append(failures, c.finish(context.Background(), s.node.log))
	}
	return errors.Join(failures...)
}

// answers asks until the server answers, one of its processes ends, or the time is up.
func (s *Server) answers(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := s.kind.ping(ctx, s.URL)
		if err == nil {
			return nil
		}
		for _, p := range s.running {
			if p.ended() {
				return fmt.Errorf("%s ended by itself (%s)", p, p.cmd.ProcessState)
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s: %w", within, err)
		}
	}
}

// failed adds to an error the last lines that the server printed: they name the cause, the error seldom does.
func (s *Server) failed(err error) error {
	_ = s.end((*process).stop)
	text, _ := os.ReadFile(s.node.log)
	return fmt.Errorf("services: %s did not start: %w; it printed:\n%s", s.Name(), err, tail(string(text), 20))
}
