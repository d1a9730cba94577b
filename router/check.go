package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

const checkTimeout = 30 * time.Second

// check fails at the start what would otherwise fail at the first message, all faults at once.
func (r *Router) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	errs := r.checkHandlers()
	if err := r.cfg.UnitOfWork.Ping(ctx); err != nil {
		return joinDistinct(append(errs, fmt.Errorf("router: the database does not answer: %w", err)))
	}
	if r.cfg.Inbox != nil {
		errs = append(errs, r.cfg.Inbox.Check(ctx))
	}
	if r.cfg.Outbox != nil {
		errs = append(errs, r.cfg.Outbox.Check(ctx))
	}
	return joinDistinct(errs)
}

// checkHandlers looks at the handlers that were added by the router's own methods. Those that were
// added to the embedded router are looked at by admit, when they subscribe.
func (r *Router) checkHandlers() (errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]string{}
	for _, b := range r.registered {
		r.resolve(b)
		errs = append(errs, r.faults(b)...)
		if !b.inbox {
			continue
		}
		if first, taken := seen[b.consumer]; taken {
			errs = append(errs, fmt.Errorf("router: handlers %q and %q share the consumer name %q: the second would skip what the first has handled; give each its own", first, b.handler, b.consumer))
		}
		seen[b.consumer] = b.handler
	}
	return errs
}

// faults are what is wrong with a handler by itself.
func (r *Router) faults(b *binding) (errs []error) {
	name := b.handler
	if name == "" {
		name = "of topic " + b.topic
	}
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("router: handler %q"+format, append([]any{name}, args...)...))
	}
	errs = append(errs, b.cfg.EnableInbox.validate("SubscriberConfig.EnableInbox of handler "+name),
		b.cfg.EnableOutbox.validate("SubscriberConfig.EnableOutbox of handler "+name))
	if b.cfg.EnableInbox == On && r.cfg.Inbox == nil {
		fault(": EnableInbox is on, but Config.Inbox is nil; pass inboxstore.New(work)")
	}
	if b.cfg.EnableOutbox == On && r.cfg.Outbox == nil {
		fault(": EnableOutbox is on, but Config.Outbox is nil; pass outboxstore.New(work)")
	}
	if b.inbox && b.publisher != nil && !b.outbox && !r.cfg.AcceptOutputLoss {
		fault(" has a publisher and an inbox but no outbox: a crash between its commit and the publication loses what it returned; configure Outbox, or set AcceptOutputLoss")
	}
	if b.outbox && b.publishTopic == "" && b.publisher != nil {
		fault(" has a publisher but no publish topic")
	}
	if b.missing != "" {
		fault(" has no %s", b.missing)
	}
	return errs
}

// admit settles the binding of a new subscription, refuses one that cannot work, and says what is
// off.
func (r *Router) admit(b *binding) error {
	r.resolve(b)
	if err := errors.Join(append(r.faults(b), r.claim(b))...); err != nil {
		return err
	}
	fields := watermill.LogFields{"consumer": b.consumer, "topic": b.topic}
	switch {
	case b.inbox || r.cfg.Inbox == nil:
	case b.subscriber == goChannel:
		r.logger.Info("The inbox is off for this handler: auto takes GoChannel for a transport that loses its messages with the process. Set EnableInbox to on to use it", fields)
	default:
		setting := "Config.EnableInbox"
		if b.cfg.EnableInbox == Off {
			setting = "SubscriberConfig.EnableInbox"
		}
		r.logger.Info("WARNING: the inbox is off for a transport that can redeliver: its messages may be handled twice. Set it to auto, or make the handler idempotent",
			fields.Add(watermill.LogFields{"setting": setting}))
	}
	if b.outbox && r.cfg.Publisher == nil && b.publisher != nil {
		r.logger.Info("WARNING: this handler's messages are staged in the outbox, but this router has no Publisher to forward them. Set Config.Publisher, or run a forwarder elsewhere", fields)
	}
	return nil
}
