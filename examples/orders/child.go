package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
)

// assignment is what a child is told. It travels by a pipe, because addresses hold passwords and
// everyone can read arguments.
type assignment struct {
	PostgresDSN, AMQPURL string
	Topics               Topics
	Inbox                router.Switch
	Orders, Workers      int
	Seed                 uint64
	Directory            string // of the counts
	Verbose              bool
}

// overdue is how long a child may take to finish when it has been asked to or its parent is gone.
const overdue = 20 * time.Second

// runChild is the program in one of its roles.
func runChild(role string, stdin io.Reader, stdout io.Closer, stderr io.Writer) int {
	// Ctrl-C reaches every process of a terminal; what a child does then is its parent's to say.
	signal.Ignore(os.Interrupt)
	var given assignment
	if err := json.NewDecoder(stdin).Decode(&given); err != nil {
		_, _ = fmt.Fprintf(stderr, "%s: read the assignment: %v\n", role, err)
		return statusUsage
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
		time.AfterFunc(overdue, func() { os.Exit(statusBroken) })
	}()
	err := work(ctx, role, given, stderr, func() { _ = stdout.Close() })
	if err != nil && !errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", role, err)
		return statusBroken
	}
	return statusOK
}

// work does the role's work until it is done or ctx ends. It calls ready when it is about to begin.
func work(ctx context.Context, role string, given assignment, stderr io.Writer, ready func()) error {
	db, err := openPool("postgres", given.PostgresDSN, given.Workers)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	app := newStack(db, dialect.Postgres, given.Topics)
	cfg := config{stderr: stderr}
	if given.Verbose {
		cfg.logger = slog.New(slog.NewTextHandler(stderr, nil)).With("process", role)
	}
	switch role {
	case producing:
		ready()
		err := app.placeOrders(ctx, given.Orders, given.Workers)
		if ctx.Err() != nil {
			return ctx.Err() // a driver has names of its own for an interruption
		}
		return err
	case forwarding:
		return forward(ctx, app, given, cfg, ready)
	case billing, shipping:
		return consume(ctx, role, app, given, cfg, ready)
	}
	return fmt.Errorf("unknown role %q", role)
}

// forward publishes the outbox of all the others.
func forward(ctx context.Context, app stack, given assignment, cfg config, ready func()) error {
	publisher, err := newPublisher(given.AMQPURL, newLogger(cfg))
	if err != nil {
		return err
	}
	forwarder, err := outboxstore.NewForwarder(app.outbox, publisher, forwarderConfig())
	if err != nil {
		return errors.Join(err, publisher.Close())
	}
	ready()
	return errors.Join(forwarder.Run(ctx), publisher.Close())
}

// consume is one of two processes that handle the messages of a consumer.
func consume(ctx context.Context, role string, app stack, given assignment, cfg config, ready func()) error {
	count := newFileTally(given.Directory)
	r, err := router.New(app.routerConfig(given.Inbox, countingMeters{count: count}), newLogger(cfg))
	if err != nil {
		return err
	}
	workers := (given.Workers + 1) / 2
	subscriber, err := newSubscriber(given.AMQPURL, role, workers, count, newLogger(cfg))
	if err != nil {
		return err
	}
	r.AddMiddleware(slowAck)
	app.addConsumer(r, role, subscriber, mishaps{dice: newDice(given.Seed), count: count})
	go func() {
		select {
		case <-r.Running():
			ready()
		case <-ctx.Done():
		}
	}()
	return r.Run(ctx)
}
