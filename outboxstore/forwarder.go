package outboxstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// Forwarder publishes what is committed in an outbox: at least once, under the message's own id.
// Rows of one ordering key go one at a time and in order, the others in parallel. Any number of
// forwarders may work on one outbox. Its methods are safe for concurrent use.
type Forwarder struct {
	source    Source
	publisher message.Publisher
	cfg       ForwarderConfig
	counters  *counters
	running   atomic.Bool
}

// ErrRunning is returned by Run when the forwarder runs already.
var ErrRunning = errors.New("outboxstore: the forwarder is running already")

// NewForwarder makes a forwarder. It starts nothing and reports every fault at once. The publisher
// is the caller's to close, after Run has returned; it must be safe for concurrent use. What it
// returns is read by [ErrRejected] and [ErrUnavailable].
func NewForwarder(source Source, publisher message.Publisher, cfg ForwarderConfig) (*Forwarder, error) {
	cfg.setDefaults()
	err := cfg.validate()
	if source == nil {
		err = errors.Join(err, errors.New("outboxstore: the forwarder's source is nil; pass outboxstore.New(work)"))
	}
	if publisher == nil {
		err = errors.Join(err, errors.New("outboxstore: the forwarder's publisher is nil; pass the publisher of your broker"))
	}
	if err != nil {
		return nil, err
	}
	return &Forwarder{source: source, publisher: publisher, cfg: cfg, counters: newCounters(cfg.MeterProvider)}, nil
}

// RunOnce publishes one batch, row by row in the calling goroutine, and returns how many rows were
// published. It starts no goroutine: leases are renewed between two messages, so Lease should be
// longer than PublishTimeout by a third. When ctx ends it stops before the next message and
// gives the rest back. Rows that were refused are no error; a broker that counts as down, a
// failure of the database and the end of ctx are.
//
// When the publisher panics, the panic goes on after the other rows have been written back; the
// row itself stays leased until its lease expires.
func (f *Forwarder) RunOnce(ctx context.Context) (int, error) {
	s := newSession(f)
	items, err := s.claim(ctx, f.cfg.Batch, f.cfg.Batch)
	if err != nil {
		return 0, err
	}
	returned := false
	defer func() {
		if !returned { // the publisher panicked, or called runtime.Goexit
			s.giveBackAll()
			_ = s.flush(ctx) // the panic is what counts; leases that stay expire
		}
	}()
	var failed error
	for i, it := range items {
		if ctx.Err() != nil || s.isDown() {
			break
		}
		if !s.waits(it) {
			continue // of a key that an earlier failure holds back
		}
		failed = errors.Join(failed, s.renewInTurn(ctx))
		s.one(context.WithoutCancel(ctx), followers(items[i:]))
	}
	s.judge()
	s.giveBackAll()
	err = s.flush(ctx)
	returned = true
	return int(s.total()), errors.Join(s.failure(), failed, err, ctx.Err())
}

// followers gives the first row and, when it has a key, the later ones of the key, which share its
// fate when it fails.
func followers(items []*item) []*item {
	key := items[0].claimed.Envelope.OrderingKey
	lane := items[:1:1]
	if key == "" {
		return lane
	}
	for _, it := range items[1:] {
		if it.claimed.Envelope.OrderingKey == key {
			lane = append(lane, it)
		}
	}
	return lane
}

// fields are what a log line says of a row: never its payload, never its receipt.
func fields(c Claimed) watermill.LogFields {
	return watermill.LogFields{
		"topic": c.Envelope.Topic, "message_uuid": c.Envelope.Message.UUID, "source": c.Envelope.Source,
		"seq": c.Lease.Seq, "attempt": c.Attempt, "rejections": c.Rejections,
	}
}

// brief bounds the text of an error from outside before it reaches a log.
func brief(err error) error {
	const bound = 512
	if text := err.Error(); len(text) > bound {
		return fmt.Errorf("%s", inbox.Clean(text, bound))
	}
	return err
}

// item is a row that this process holds.
type item struct {
	claimed Claimed
	until   time.Time // the lease lasts at least so long, by this process's own clock
	before  int64     // rows that this forwarder had published when this one was claimed
	started time.Time // when its publication began; zero: it waits, or is done
	state   itemState
}

type itemState int

const (
	waiting   itemState = iota // for a worker
	suspected                  // failed, and nobody knows yet whether it is to blame, or behind such a row
	settled                    // its outcome is known and on its way into the table
	lostLease                  // somebody else may have it
)
