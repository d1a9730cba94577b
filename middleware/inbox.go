package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/metric"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// InboxStore is what [Inbox] needs of a store. Those of package inboxstore fit.
type InboxStore interface {
	// TryBegin stages the message's row in the unit of work of ctx and says what it found.
	TryBegin(ctx context.Context, key inbox.Key) (inbox.Outcome, error)
	// Complete records success, still in the unit of work.
	Complete(ctx context.Context, key inbox.Key) error
	// Abandon reports whether the row is gone, outside any unit of work.
	Abandon(ctx context.Context, key inbox.Key) (bool, error)
}

// InboxConfig configures [Inbox]. The functions see the message as it was delivered, before the
// handler; they must be pure and safe for concurrent use.
type InboxConfig struct {
	// Consumer names the consumer. It is part of the key, so it must stay the same from release
	// to release. Default: the name of Watermill's handler.
	Consumer func(*message.Message) string
	// MessageID gives the message's id. Default: its UUID.
	MessageID func(*message.Message) string
	// IdempotencyKey gives a second identity that the business knows, or "" for none, and the
	// tenant that scopes it. Default: none.
	IdempotencyKey func(*message.Message) (tenant, key string)
	// Logger gets skipped messages at debug level and misuse at info or error level. Default: none.
	Logger watermill.LoggerAdapter
	// MeterProvider takes the counters. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

func (c *InboxConfig) setDefaults() {
	if c.Consumer == nil {
		c.Consumer = func(msg *message.Message) string { return message.HandlerNameFromCtx(msg.Context()) }
	}
	if c.MessageID == nil {
		c.MessageID = func(msg *message.Message) string { return msg.UUID }
	}
	if c.IdempotencyKey == nil {
		c.IdempotencyKey = func(*message.Message) (string, string) { return "", "" }
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

// Inbox lets a message through to the handler once per consumer. It stages the message's row in
// the unit of work of the message's context, so it belongs inside [UnitOfWork]; a redelivery of
// what was committed is acknowledged without calling the handler. Errors: [inbox.ErrInFlight],
// the errors of [inbox.Key.Validate], [uow.ErrNoTransaction] where there is no unit of work.
func Inbox(store InboxStore, cfg InboxConfig) message.HandlerMiddleware {
	cfg.setDefaults()
	i := &inboxMiddleware{store: store, cfg: cfg, count: newCounters(cfg.MeterProvider)}
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			return i.handle(msg, next)
		}
	}
}

type inboxMiddleware struct {
	store InboxStore
	cfg   InboxConfig
	count *counters
}

func (i *inboxMiddleware) handle(msg *message.Message, next message.HandlerFunc) ([]*message.Message, error) {
	if IsPhantom(msg) {
		return nil, inbox.ErrPhantom
	}
	ctx, key := msg.Context(), i.key(msg)
	if err := key.Validate(); err != nil {
		return nil, unusableKey{err}
	}
	outcome, err := i.store.TryBegin(ctx, key)
	switch {
	case errors.Is(err, uow.ErrNoTransaction):
		return nil, err // the middlewares are in a wrong order
	case err != nil:
		return nil, fmt.Errorf("%w: %w", inbox.ErrStore, err)
	case outcome == inbox.Duplicate:
		i.count.add(ctx, skipped, key.Consumer)
		i.cfg.Logger.Debug("Message is handled already, skipped", fields(key))
		return nil, nil
	case outcome == inbox.InFlight:
		i.count.add(ctx, inFlight, key.Consumer)
		return nil, inbox.ErrInFlight
	}
	return i.run(ctx, key, msg, next)
}

// errUnfinished stands for the result of a handler that did not return.
var errUnfinished = errors.New("the handler panicked")

// run calls the handler behind a staged row.
func (i *inboxMiddleware) run(ctx context.Context, key inbox.Key, msg *message.Message, next message.HandlerFunc) ([]*message.Message, error) {
	handlerErr := errUnfinished
	// These two fail where there is no transaction to end, as with the Disabled store.
	_ = uow.Confirm(ctx, func(ctx context.Context) (bool, error) { return i.ended(ctx, key, handlerErr) })
	_ = uow.AfterCommit(ctx, func() {
		if handlerErr == nil { // else the handler committed, and failed afterwards
			i.count.add(ctx, handled, key.Consumer)
		}
	})
	var produced []*message.Message
	if produced, handlerErr = next(msg); handlerErr != nil {
		i.count.add(ctx, failed, key.Consumer)
		return nil, handlerErr
	}
	if err := i.store.Complete(ctx, key); err != nil {
		return nil, fmt.Errorf("inbox: complete: %w", err)
	}
	return produced, nil
}

// ended answers the unit of work when the handler has ended the transaction itself: the row, looked
// up in a fresh transaction, decides whether the message is handled.
func (i *inboxMiddleware) ended(ctx context.Context, key inbox.Key, handlerErr error) (committed bool, err error) {
	abandoned, err := i.store.Abandon(ctx, key)
	if err != nil || abandoned {
		return false, err
	}
	if handlerErr == nil {
		i.cfg.Logger.Info("WARNING: the handler committed the transaction itself; the message is handled. Let the unit of work commit", fields(key))
		return true, nil
	}
	i.count.add(ctx, abandonRefused, key.Consumer)
	i.cfg.Logger.Error("The handler committed the transaction itself and then failed: the message cannot be abandoned, its redelivery will be skipped and what had not run never will. Let the unit of work commit", handlerErr, fields(key))
	return true, nil
}

func (i *inboxMiddleware) key(msg *message.Message) inbox.Key {
	key := inbox.Key{Consumer: i.cfg.Consumer(msg), MessageID: i.cfg.MessageID(msg)}
	key.Tenant, key.IdempotencyKey = i.cfg.IdempotencyKey(msg)
	return key
}

// unusableKey marks a fault of the delivery's own key, which no retry can mend. The same errors of
// package inbox may come from the handler, about a message that it sends; those are its own.
type unusableKey struct{ error }

func (u unusableKey) Unwrap() error { return u.error }

func unusable(err error) bool {
	var u unusableKey
	return errors.As(err, &u)
}

// IsPhantom reports whether a delivery is empty through and through, so that nobody can have sent it.
func IsPhantom(msg *message.Message) bool {
	return msg.UUID == "" && len(msg.Payload) == 0 && len(msg.Metadata) == 0
}

func fields(key inbox.Key) watermill.LogFields {
	return watermill.LogFields{"message_uuid": key.MessageID, "consumer": key.Consumer}
}
