package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/metric"

	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// Inbox is what the router needs of an inbox store: *inboxstore.Store or *inboxstore.Memory.
type Inbox interface {
	middleware.InboxStore
	middleware.Burier
	UnitOfWork() *uow.UnitOfWork
	Validate() error
	Check(ctx context.Context) error
	Purge(ctx context.Context, keep inboxstore.Retention, limit int) (int64, error)
}

// Outbox is what the router needs of an outbox store: *outboxstore.Store or *outboxstore.Memory.
type Outbox interface {
	middleware.Stager
	outboxstore.Source
	UnitOfWork() *uow.UnitOfWork
	Validate() error
	Check(ctx context.Context) error
	Purge(ctx context.Context, policy outboxstore.PurgePolicy) (int64, error)
}

// Config configures a router. Only UnitOfWork is required.
type Config struct {
	// UnitOfWork is the transaction in which every handler runs.
	UnitOfWork *uow.UnitOfWork
	// Inbox remembers what was handled, on the same unit of work. Default: none, messages are not
	// deduplicated.
	Inbox Inbox
	// Outbox keeps outgoing messages until they are published, on the same unit of work. Default:
	// none, Watermill publishes what handlers return after the commit.
	Outbox Outbox
	// Publisher is where this router's forwarder publishes the outbox. When it returns nil the
	// broker must have the message: with watermill-amqp set Publish.ConfirmDelivery. It is the
	// caller's to close. Default: none, another process forwards.
	Publisher message.Publisher

	// EnableInbox and EnableOutbox are the defaults for all subscribers. Default: Auto, which is
	// on for every transport but the in-process GoChannel.
	EnableInbox, EnableOutbox Switch
	// AcceptOutputLoss lets a handler with an inbox and a publisher, but no outbox, start: a crash
	// between its commit and its publication loses what it returned. Default: the router refuses.
	AcceptOutputLoss bool

	// Retry is the policy for failed handlers.
	Retry Retry
	// DeadLetter is where messages go that failed for good. Default: nowhere; they are nacked and
	// the broker's own policy decides, except messages without a usable id, which are kept as dead
	// inbox rows.
	DeadLetter DeadLetter
	// Retention says how long rows are kept.
	Retention Retention
	// Forwarder configures the forwarder that runs with the router when Publisher is set.
	Forwarder outboxstore.ForwarderConfig

	// CloseTimeout is how long handlers that have begun may go on when the router closes, and
	// after them the forwarder. Default: 30 s.
	CloseTimeout time.Duration
	// MeterProvider takes the counters. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

// Retry is the policy for failed handlers, each try in a fresh transaction.
type Retry struct {
	// Tries is how often a delivery is handled in this process before it goes to the dead-letter
	// path. Default: 3. 1 means no retry.
	Tries int
	// Interval is the pause before the second try; it doubles. Default: 100 ms.
	Interval time.Duration
	// MaxInterval bounds the pause. Default: 10 s.
	MaxInterval time.Duration
	// Horizon is the longest time after which a message may be delivered again, by delay queues,
	// the broker's redelivery or a replay. Retention.Processed must be longer. Default: 1 h.
	Horizon time.Duration
}

// DeadLetter is where messages go that failed for good, by Watermill's poison queue middleware.
type DeadLetter struct {
	// Topic and Publisher go together. The message is published directly, then acknowledged.
	Topic     string
	Publisher message.Publisher
}

// Retention says how long rows are kept, by the database's clock. Negative keeps them for ever.
type Retention struct {
	// Processed is how long a redelivery is recognised. Default: 7 days.
	Processed time.Duration
	// Forwarded is how long published outbox rows are kept. Default: 24 h.
	Forwarded time.Duration
	// Dead is how long dead rows are kept, in the inbox and in the outbox. Default: 30 days.
	Dead time.Duration
	// Every is the time between two purges, and from the start to the first. Default: 5 min.
	Every time.Duration
	// Chunk is how many rows one statement deletes. Default: 1,000.
	Chunk int
}

func (c *Config) setDefaults() {
	orDuration(&c.CloseTimeout, 30*time.Second)
	orDuration(&c.Retry.Interval, 100*time.Millisecond)
	orDuration(&c.Retry.MaxInterval, 10*time.Second)
	orDuration(&c.Retry.Horizon, time.Hour)
	orDuration(&c.Retention.Processed, 7*24*time.Hour)
	orDuration(&c.Retention.Forwarded, 24*time.Hour)
	orDuration(&c.Retention.Dead, 30*24*time.Hour)
	orDuration(&c.Retention.Every, 5*time.Minute)
	if c.Retry.Tries == 0 {
		c.Retry.Tries = 3
	}
	if c.Retention.Chunk == 0 {
		c.Retention.Chunk = 1000
	}
}

// forwarder is the forwarder's configuration, with what the router knows filled in.
func (c *Config) forwarder(logger watermill.LoggerAdapter) outboxstore.ForwarderConfig {
	f := c.Forwarder
	if f.Logger == nil {
		f.Logger = logger
	}
	if f.MeterProvider == nil {
		f.MeterProvider = c.MeterProvider
	}
	orDuration(&f.DrainTimeout, min(10*time.Second, c.CloseTimeout))
	return f
}

func orDuration(field *time.Duration, value time.Duration) {
	if *field == 0 {
		*field = value
	}
}

// validate reports every fault at once.
func (c Config) validate() error {
	errs := []error{
		c.EnableInbox.validate("EnableInbox"),
		c.EnableOutbox.validate("EnableOutbox"),
		c.UnitOfWork.Validate(),
	}
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("router: "+format, args...)) }
	if c.Inbox != nil {
		errs = append(errs, c.Inbox.Validate())
		if c.Inbox.UnitOfWork() != c.UnitOfWork {
			fault("Inbox was made on another unit of work than UnitOfWork; pass the same one to both")
		}
	} else if c.EnableInbox == On {
		fault("EnableInbox is on, but Inbox is nil; pass inboxstore.New(work)")
	}
	if c.Outbox != nil {
		errs = append(errs, c.Outbox.Validate())
		if c.Outbox.UnitOfWork() != c.UnitOfWork {
			fault("Outbox was made on another unit of work than UnitOfWork; pass the same one to both")
		}
	} else {
		if c.EnableOutbox == On {
			fault("EnableOutbox is on, but Outbox is nil; pass outboxstore.New(work)")
		}
		if c.Publisher != nil {
			fault("Publisher is set, but Outbox is nil: there is nothing to forward; pass outboxstore.New(work)")
		}
	}
	if (c.DeadLetter.Topic == "") != (c.DeadLetter.Publisher == nil) {
		fault("DeadLetter.Topic and DeadLetter.Publisher go together; set both or neither")
	}
	if c.Retry.Tries < 1 {
		fault("Retry.Tries is %d; use at least 1", c.Retry.Tries)
	}
	if c.Retention.Chunk < 1 {
		fault("Retention.Chunk is %d; use at least 1", c.Retention.Chunk)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"CloseTimeout", c.CloseTimeout}, {"Retry.Interval", c.Retry.Interval},
		{"Retry.MaxInterval", c.Retry.MaxInterval}, {"Retry.Horizon", c.Retry.Horizon}, {"Retention.Every", c.Retention.Every},
	} {
		if d.value < 0 {
			fault("%s is %s; use a positive duration", d.name, d.value)
		}
	}
	if c.Retention.Processed > 0 && c.Retention.Processed <= c.Retry.Horizon {
		fault("Retention.Processed is %s, not longer than Retry.Horizon, %s: a late redelivery would be handled twice; raise the one or lower the other", c.Retention.Processed, c.Retry.Horizon)
	}
	return joinDistinct(errs)
}

// joinDistinct joins errors, each text once: a fault of the unit of work is found by everything
// that is made on it.
func joinDistinct(errs []error) error {
	seen := map[string]bool{}
	var distinct []error
	for _, err := range errs {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			distinct = append(distinct, err)
		}
	}
	return errors.Join(distinct...)
}
