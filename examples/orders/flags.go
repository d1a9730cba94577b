package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// The variables that say where the real servers are.
const (
	postgresVariable = "WATERMILL_INBOX_POSTGRES_DSN"
	amqpVariable     = "WATERMILL_INBOX_AMQP_URL"
)

// config is what the flags say.
type config struct {
	orders, workers, kills int
	seed                   uint64
	directory              string
	keep, real, verbose    bool

	postgresDSN, amqpURL string
	stderr               io.Writer
	logger               *slog.Logger // nil unless verbose
}

// errHelp is returned when the user asked for help and got it.
var errHelp = errors.New("help was asked for")

func parseFlags(args []string, stdout, stderr io.Writer) (config, error) {
	cfg := config{stderr: stderr}
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are ours to print, once
	flags.IntVar(&cfg.orders, "orders", 1000, "how many orders are placed in each pass")
	flags.Uint64Var(&cfg.seed, "seed", 1, "decides what goes wrong: the same seed hits the same messages")
	flags.IntVar(&cfg.workers, "workers", 8, "how many messages each consumer handles at the same time, and how many\n"+
		"orders are placed at the same time; with -real, spread over two processes")
	flags.StringVar(&cfg.directory, "dir", "", "where the directory with the database files is made (default: the system's\n"+
		"temporary directory)")
	flags.BoolVar(&cfg.keep, "keep", false, "keep that directory, and with -real the Postgres schemas and the RabbitMQ\n"+
		"queues as well, and say where they are")
	flags.BoolVar(&cfg.real, "real", false, "run on Postgres and RabbitMQ in processes that are killed; make demo-real\n"+
		"starts the servers and does this")
	flags.IntVar(&cfg.kills, "kills", 12, "with -real, how many processes are killed in each pass")
	flags.BoolVar(&cfg.verbose, "v", false, "log to stderr what the library and Watermill log; it is a lot")

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, helpText)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		_, _ = io.WriteString(stdout, helpExamples)
		return cfg, errHelp
	case err != nil:
		return cfg, err
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if cfg.verbose {
		cfg.logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	return cfg, cfg.validate()
}

func (c *config) validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int
		least int
	}{{"orders", c.orders, 1}, {"workers", c.workers, 1}, {"kills", c.kills, 0}} {
		if f.value < f.least {
			errs = append(errs, fmt.Errorf("-%s is %d, it must be at least %d", f.name, f.value, f.least))
		}
	}
	if c.real {
		c.postgresDSN, c.amqpURL = os.Getenv(postgresVariable), os.Getenv(amqpVariable)
		if c.postgresDSN == "" || c.amqpURL == "" {
			errs = append(errs, fmt.Errorf("-real needs servers: set %s and %s to their addresses, or run `make demo-real`, which starts both", postgresVariable, amqpVariable))
		}
	}
	return errors.Join(errs...)
}
