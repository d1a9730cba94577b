// Command orders shows handlers that take effect once although everything around them misbehaves.
// Run it with -h for what it does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/watermill-inbox/watermill-inbox/router"
)

// The exit statuses.
const (
	statusOK          = 0
	statusBroken      = 1 // double or lost effects although the inbox was on, or an error
	statusUsage       = 2
	statusInterrupted = 130 // as the shell says it for Ctrl-C
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == roleFlag {
		os.Exit(runChild(os.Args[2], os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// pass is one run of the load.
type pass struct {
	name  string // in the table
	file  string // in names of files, schemas and topics
	inbox router.Switch
}

var passes = []pass{
	{name: "1 inbox off", file: "pass1_off", inbox: router.Off},
	{name: "2 inbox on", file: "pass2_on", inbox: router.On},
}

// run is the program. The verdict is about the last pass.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stdout, stderr)
	switch {
	case errors.Is(err, errHelp):
		return statusOK
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "orders: %v\nRun it with -h for help.\n", err)
		return statusUsage
	}
	results, err := runPasses(ctx, cfg)
	switch {
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "orders: interrupted")
		return statusInterrupted
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "orders: %v\n", err)
		return statusBroken
	}
	if err := printResults(stdout, cfg, results); err != nil {
		_, _ = fmt.Fprintf(stderr, "orders: %v\n", err)
		return statusBroken
	}
	if last := results[len(results)-1]; last.double() != 0 || last.lost() != 0 {
		return statusBroken
	}
	return statusOK
}

func runPasses(ctx context.Context, cfg config) (results []result, err error) {
	if cfg.directory, err = os.MkdirTemp(cfg.directory, "orders-"); err != nil {
		return nil, err
	}
	if cfg.keep {
		_, _ = fmt.Fprintf(cfg.stderr, "orders: the files stay in %s\n", cfg.directory)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(cfg.directory)) }()
	}
	onePass := runPass
	if cfg.real {
		onePass = runRealPass
	}
	for _, p := range passes {
		r, err := onePass(ctx, cfg, p)
		if err != nil {
			return nil, fmt.Errorf("pass %s: %w", p.name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

func printResults(stdout io.Writer, cfg config, results []result) error {
	err := printTable(stdout, results)
	last := results[len(results)-1]
	if cfg.real {
		_, printErr := fmt.Fprintf(stdout, "kills=%d\n", last.kills)
		err = errors.Join(err, printErr)
	}
	_, printErr := fmt.Fprintln(stdout, last.verdict())
	return errors.Join(err, printErr)
}
