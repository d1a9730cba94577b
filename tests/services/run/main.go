// Command run starts the servers of the tests, runs a command that finds them in its environment, and stops them.
//
//	go run ./tests/services/run [-only postgres,rabbitmq] [-- COMMAND ARGUMENTS...]
//
// The command's exit code becomes its own. Without a command it prints the variables to export and keeps the servers
// until it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/watermill-inbox/watermill-inbox/tests/services"
)

func main() {
	only := flag.String("only", "", "servers to start, separated by commas (default: all)")
	flag.Parse()
	code, err := run(*only, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(only string, arguments []string) (code int, err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	orphaned(signals)

	servers, err := start(only, signals)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()

	if len(arguments) == 0 {
		for _, variable := range servers.Environment() {
			name, value, _ := strings.Cut(variable, "=")
			fmt.Printf("export %s='%s'\n", name, value)
		}
		fmt.Fprintln(os.Stderr, "services: up until interrupted (Ctrl-C)")
		<-signals
		return 0, nil
	}
	return runCommand(arguments, servers.Environment(), signals)
}

// start gives up when a signal arrives, with everything stopped.
func start(only string, signals <-chan os.Signal) (*services.Running, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("services: %s while starting", s))
		case <-ctx.Done():
		}
	}()
	options := services.Options{Install: true, Log: os.Stderr}
	if only != "" {
		options.Only = strings.Split(only, ",")
	}
	servers, err := services.Start(ctx, options)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return servers, err
}

// orphaned turns the parent's death into a signal: "go run" that is killed leaves its program, and the servers with
// it, to nobody.
func orphaned(signals chan<- os.Signal) {
	parent := os.Getppid()
	go func() {
		for range time.Tick(time.Second) {
			if os.Getppid() != parent {
				signals <- syscall.SIGTERM
				return
			}
		}
	}()
}
