package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// UnitOfWorkConfig configures [UnitOfWork].
type UnitOfWorkConfig struct {
	// Retries is how often a serialization failure, a deadlock or a busy database is answered by
	// a fresh transaction before it is an error like any other. Default: 10.
	Retries int
	// WaitInitial and WaitMax bound the pause between two tries while the database is away. It
	// doubles, with jitter. Defaults: 1 s and 30 s.
	WaitInitial, WaitMax time.Duration
	// Closing, when it is closed, ends the waiting for a database that is away. Default: none,
	// the delivery's context alone ends it.
	Closing <-chan struct{}
	// Logger is told when the database is away. Default: none.
	Logger watermill.LoggerAdapter
}

func (c *UnitOfWorkConfig) setDefaults() {
	if c.Retries == 0 {
		c.Retries = 10
	}
	if c.WaitInitial == 0 {
		c.WaitInitial = time.Second
	}
	if c.WaitMax == 0 {
		c.WaitMax = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

const (
	pingTimeout = 5 * time.Second
	// lostConnections is how often in a row a transaction may lose its connection, while the
	// database answers others, before that is put down to the handler: one that idles longer than
	// the server lets a transaction idle loses it every time.
	lostConnections = 3
	logEvery        = 10 * time.Second
)

// UnitOfWork runs the handler in a transaction of work, which it commits when the handler succeeds
// and rolls back when it fails, panics or lets its context end. The message's context carries the
// transaction and is put back on the way out.
//
// While the database is unreachable or read-only it holds the delivery and tries again, until the
// delivery's context ends or Closing does; the error is then [inbox.ErrInterrupted].
func UnitOfWork(work *uow.UnitOfWork, cfg UnitOfWorkConfig) message.HandlerMiddleware {
	cfg.setDefaults()
	u := &unitOfWork{work: work, cfg: cfg}
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			return u.handle(msg, next)
		}
	}
}

type unitOfWork struct {
	work   *uow.UnitOfWork
	cfg    UnitOfWorkConfig
	logged atomic.Int64 // when the last line about an absent database was written
}

func (u *unitOfWork) handle(msg *message.Message, next message.HandlerFunc) ([]*message.Message, error) {
	var pause *backoff.ExponentialBackOff // made when it is needed, which is hardly ever
	ctx := msg.Context()
	asDelivered, succeeded := snapshot(msg), false
	defer func() {
		if !succeeded {
			asDelivered.restore(msg) // for the retry policy's next try, and for the dead-letter path
		}
	}()
	for lost := 0; ; {
		produced, ran, err := u.once(ctx, msg, asDelivered, next)
		switch {
		case err == nil:
			succeeded = true
			return produced, nil
		case ctx.Err() != nil && !ran:
			return nil, fmt.Errorf("%w before the transaction began: %w", inbox.ErrInterrupted, err)
		case ctx.Err() != nil, unusable(err), inbox.Transient(err) && !errors.Is(err, inbox.ErrStore):
			return nil, err
		}
		away, answers := u.away(ctx, err)
		if !away {
			return nil, err
		}
		if ran && answers {
			if lost++; lost >= lostConnections {
				return nil, fmt.Errorf("the transaction was lost %d times while the database answers others; does the handler idle in it, or write past its rights?: %w", lost, err)
			}
		}
		if pause == nil {
			pause = backoff.NewExponentialBackOff()
			pause.InitialInterval, pause.MaxInterval, pause.Multiplier = u.cfg.WaitInitial, u.cfg.WaitMax, 2
		}
		asDelivered.restore(msg)
		if !u.wait(ctx, msg, pause.NextBackOff(), err) {
			return nil, fmt.Errorf("%w while the database was away: %w", inbox.ErrInterrupted, err)
		}
	}
}

// delivered is a message as the broker handed it over. A handler may change it, to pass it on under
// another id for instance, and then fail: the next try must find the same key.
type delivered struct {
	id       string
	payload  message.Payload
	metadata message.Metadata
}

func snapshot(msg *message.Message) delivered {
	return delivered{msg.UUID, msg.Payload, maps.Clone(msg.Metadata)}
}

func (d delivered) restore(msg *message.Message) {
	msg.UUID, msg.Payload = d.id, d.payload
	if !maps.Equal(msg.Metadata, d.metadata) {
		msg.Metadata = maps.Clone(d.metadata)
	}
}

// once handles the message in one transaction, and reports whether a handler ran. An in-process
// broker may hand on the publisher's context together with its transaction, which is not this
// delivery's: hence Detach.
func (u *unitOfWork) once(ctx context.Context, msg *message.Message, asDelivered delivered, next message.HandlerFunc) (produced []*message.Message, ran bool, err error) {
	defer msg.SetContext(ctx)
	tries := 0
	err = u.work.Do(uow.Detach(ctx), func(ctx context.Context) error {
		if tries++; tries > 1 {
			asDelivered.restore(msg)
		}
		if tries == 2 {
			u.cfg.Logger.Info("The transaction met another one and is tried again; if this repeats, the handler may be writing past the transaction of uow.Tx", u.fields(msg))
		}
		msg.SetContext(ctx)
		produced, err = next(msg)
		return err
	}, uow.Retry(u.cfg.Retries))
	if err != nil {
		return nil, tries > 0 && !errors.Is(err, inbox.ErrStore), err
	}
	return produced, true, nil
}

// away reports whether err came from a database that was away, and if so, whether it answers others
// although this transaction was lost.
func (u *unitOfWork) away(ctx context.Context, err error) (away, answers bool) {
	var op *uow.OpError
	failed := errors.As(err, &op) && op.Work == u.work
	if errors.Is(err, inbox.ErrStore) || failed && op.Op == "begin" {
		return true, false // the handler has not run
	}
	lost := failed && dialect.Connection(op.Err) || u.work.Dialect().Classify(err) == dialect.Infrastructure
	ping, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	pinged := u.work.Ping(ping)
	// A ping that waited in vain for a connection of a busy pool says nothing about the database.
	answers = pinged == nil || errors.Is(pinged, context.DeadlineExceeded)
	return lost || !answers, answers
}

func (*unitOfWork) fields(msg *message.Message) watermill.LogFields {
	return watermill.LogFields{
		"message_uuid": inbox.Clean(msg.UUID, inbox.MaxID),
		"consumer":     message.HandlerNameFromCtx(msg.Context()),
	}
}

func (u *unitOfWork) wait(ctx context.Context, msg *message.Message, delay time.Duration, err error) bool {
	now := time.Now().UnixNano()
	if last := u.logged.Load(); now-last > int64(logEvery) && u.logged.CompareAndSwap(last, now) {
		text := "Database is away, the delivery is held and tried again; nothing is lost or counted"
		if u.work.Class(err) == dialect.Missing {
			text = "Tables are missing, the delivery is held and tried again; run the migrations (an in-memory SQLite is one database per connection)"
		}
		u.cfg.Logger.Error(text, err, u.fields(msg).Add(watermill.LogFields{"next_try_in": delay.String()}))
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-u.cfg.Closing:
	}
	return false
}
