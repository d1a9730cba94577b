package router

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/middleware"
)

// ErrOutputWithoutOutbox is returned when a handler with an inbox returned messages while no
// outbox is in force: a crash between its commit and their publication would lose them.
var ErrOutputWithoutOutbox = errors.New("router: the handler returned messages, but no outbox is in force for it, so a crash after its commit would lose them; configure Outbox, or set AcceptOutputLoss")

// arrange puts the middlewares in their order: the outer group outside the application's own
// middlewares, the inner group inside of them, next to the handler. An application's own retry can
// therefore never run inside the transaction, nor its own error swallowing inside the inbox. The
// router's own methods put the inner group around the handler's function; for handlers that are
// added to the embedded router a plugin adds it as the last middleware, when the router starts.
func (r *Router) arrange() error {
	outer, err := r.outer()
	if err != nil {
		return err
	}
	r.AddMiddleware(outer...)
	r.inner = chain(r.innermost())
	r.AddPlugin(func(embedded *message.Router) error {
		if !r.used.Load() {
			return errors.New("router: call Run on the router itself, not on the embedded Watermill router: it would skip the checks and the forwarder")
		}
		embedded.AddMiddleware(when(func(b *binding) bool { return !b.arranged }, r.inner))
		return nil
	})
	r.AddSubscriberDecorators(r.guard)
	r.AddPublisherDecorators(r.hold)
	return nil
}

// chain makes one middleware of several, the first one outermost.
func chain(all []message.HandlerMiddleware) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		for i := len(all) - 1; i >= 0; i-- {
			next = all[i](next)
		}
		return next
	}
}

// outer is what decides on a failure: dead letter, retry, recover.
func (r *Router) outer() ([]message.HandlerMiddleware, error) {
	var chain []message.HandlerMiddleware
	switch {
	case r.cfg.DeadLetter.Topic != "":
		deadLetter, err := wm.PoisonQueueWithFilter(r.cfg.DeadLetter.Publisher, r.cfg.DeadLetter.Topic, middleware.ShouldDeadLetter)
		if err != nil {
			return nil, err
		}
		chain = append(chain, deadLetter, r.logDeadLetter)
	case r.cfg.Inbox != nil:
		chain = append(chain, middleware.Bury(r.cfg.Inbox, r.inboxConfig()))
	}
	retry := wm.Retry{
		MaxRetries:          r.cfg.Retry.Tries - 1,
		InitialInterval:     r.cfg.Retry.Interval,
		MaxInterval:         r.cfg.Retry.MaxInterval,
		Multiplier:          2,
		RandomizationFactor: 0.2,
		ShouldRetry:         middleware.ShouldRetry,
		ResetContextOnRetry: true,
	}
	return append(chain, middleware.Interrupted, retry.Middleware, r.logFailures, middleware.ShortErrors, middleware.Recover), nil
}

// logDeadLetter writes one line for a message that goes to the dead-letter topic, because
// Watermill's middleware takes it away in silence.
func (r *Router) logDeadLetter(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err != nil && middleware.ShouldDeadLetter(err) {
			r.logger.Error("Message failed for good and goes to the dead-letter topic; replay it from there once it is mended", err,
				r.fields(msg).Add(watermill.LogFields{"dead_letter_topic": r.cfg.DeadLetter.Topic}))
		}
		return produced, err
	}
}

// fields are what a log line says of a delivery.
func (r *Router) fields(msg *message.Message) watermill.LogFields {
	ctx := msg.Context()
	return watermill.LogFields{
		"message_uuid": inbox.Clean(msg.UUID, inbox.MaxID), "consumer": bindingFrom(ctx).consumer,
		"topic": message.SubscribeTopicFromCtx(ctx),
	}
}

// logFailures writes one line for every try that failed, which Watermill's Retry would not name.
func (r *Router) logFailures(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err != nil && !inbox.Transient(err) {
			r.logger.Error("Handler failed; its work is rolled back", err, r.fields(msg))
		}
		return produced, err
	}
}

// innermost is what makes the handler take effect once: unit of work, inbox, outbox staging.
func (r *Router) innermost() []message.HandlerMiddleware {
	chain := []message.HandlerMiddleware{
		middleware.UnitOfWork(r.cfg.UnitOfWork, middleware.UnitOfWorkConfig{Closing: r.closing, Logger: r.logger}),
	}
	if r.cfg.Inbox != nil {
		chain = append(chain, when(func(b *binding) bool { return b.inbox }, middleware.Inbox(r.cfg.Inbox, r.inboxConfig())))
	}
	if r.cfg.Outbox != nil {
		chain = append(chain, when(func(b *binding) bool { return b.outbox }, middleware.Outbox(r.cfg.Outbox)))
	}
	if !r.cfg.AcceptOutputLoss {
		chain = append(chain, when(func(b *binding) bool { return b.inbox && !b.outbox }, refuseOutput))
	}
	return chain
}

// inboxConfig reads the settings of the subscriber from the binding in the message's context.
func (r *Router) inboxConfig() middleware.InboxConfig {
	return middleware.InboxConfig{
		Consumer: func(msg *message.Message) string { return bindingFrom(msg.Context()).consumer },
		MessageID: func(msg *message.Message) string {
			if f := bindingFrom(msg.Context()).cfg.MessageID; f != nil {
				return f(msg)
			}
			return msg.UUID
		},
		IdempotencyKey: func(msg *message.Message) (tenant, key string) {
			if f := bindingFrom(msg.Context()).cfg.IdempotencyKey; f != nil {
				return f(msg)
			}
			return "", ""
		},
		Logger:        r.logger,
		MeterProvider: r.cfg.MeterProvider,
	}
}

// when applies a middleware to the subscriptions for which it is on.
func when(on func(*binding) bool, m message.HandlerMiddleware) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		applied := m(next)
		return func(msg *message.Message) ([]*message.Message, error) {
			if on(bindingFrom(msg.Context())) {
				return applied(msg)
			}
			return next(msg)
		}
	}
}

func refuseOutput(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err == nil && len(produced) > 0 {
			return nil, ErrOutputWithoutOutbox
		}
		return produced, err
	}
}

// hold keeps Watermill from closing a handler's publisher when that handler stops: others, and the
// forwarder's last messages, may still need it. Run closes it at the end.
func (r *Router) hold(publisher message.Publisher) (message.Publisher, error) {
	if publisher == nil {
		return nil, nil //nolint:nilnil // a handler without a publisher stays one
	}
	return heldPublisher{publisher, r}, nil
}

type heldPublisher struct {
	message.Publisher
	router *Router
}

func (h heldPublisher) Close() error {
	h.router.mu.Lock()
	defer h.router.mu.Unlock()
	h.router.held = append(h.router.held, h.Publisher.Close)
	return nil
}
