package router

import (
	"context"
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
		errs = append(errs, b.cfg.EnableInbox.validate("SubscriberConfig.EnableInbox of handler "+b.handler),
			b.cfg.EnableOutbox.validate("SubscriberConfig.EnableOutbox of handler "+b.handler))
		if first, taken := seen[b.consumer]; taken && b.inbox {
			errs = append(errs, fmt.Errorf("router: handlers %q and %q share the consumer name %q: the second would skip what the first has handled; give each its own", first, b.handler, b.consumer))
		}
		seen[b.consumer] = b.handler
		if b.cfg.EnableInbox == On && r.cfg.Inbox == nil {
			errs = append(errs, fmt.Errorf("router: handler %q: EnableInbox is on, but Config.Inbox is nil; pass inboxstore.New(work)", b.handler))
		}
		if b.cfg.EnableOutbox == On && r.cfg.Outbox == nil {
			errs = append(errs, fmt.Errorf("router: handler %q: EnableOutbox is on, but Config.Outbox is nil; pass outboxstore.New(work)", b.handler))
		}
		if b.inbox && b.publisher != nil && !b.outbox && !r.cfg.AcceptOutputLoss {
			errs = append(errs, fmt.Errorf("router: handler %q has a publisher and an inbox but no outbox: a crash between its commit and the publication loses what it returned; configure Outbox, or set AcceptOutputLoss", b.handler))
		}
		if b.missing != "" {
			errs = append(errs, fmt.Errorf("router: handler %q has no %s", b.handler, b.missing))
		}
		if b.outbox && b.publishTopic == "" && b.publisher != nil {
			errs = append(errs, fmt.Errorf("router: handler %q has a publisher but no publish topic", b.handler))
		}
	}
	return errs
}

// admit settles the binding of a new subscription, refuses a consumer name that is taken, and
// warns of an inbox that is off.
func (r *Router) admit(b *binding) error {
	r.resolve(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.inbox && b.consumer != "" {
		if other, taken := r.consumers[b.consumer]; taken {
			return fmt.Errorf("router: the consumer name %q of topic %q is taken by a handler of topic %q: the second would skip what the first has handled; give each its own", b.consumer, b.topic, other.topic)
		}
		r.consumers[b.consumer] = b
	}
	if !b.inbox && r.cfg.Inbox != nil && b.subscriber != goChannel {
		setting := "Config.EnableInbox"
		if b.cfg.EnableInbox == Off {
			setting = "SubscriberConfig.EnableInbox"
		}
		r.logger.Info("WARNING: the inbox is off for a transport that can redeliver: its messages may be handled twice. Set it to auto, or make the handler idempotent", watermill.LogFields{
			"setting": setting, "consumer": b.consumer, "topic": b.topic,
		})
	}
	if !b.inbox && r.cfg.Inbox != nil && b.subscriber == goChannel {
		r.logger.Info("The inbox is off for this handler: auto takes GoChannel for a transport that loses its messages with the process. Set EnableInbox to on to use it", watermill.LogFields{"consumer": b.consumer, "topic": b.topic})
	}
	if b.outbox && r.cfg.Publisher == nil && b.publisher != nil {
		r.logger.Info("WARNING: this handler's messages are staged in the outbox, but this router has no Publisher to forward them. Set Config.Publisher, or run a forwarder elsewhere", watermill.LogFields{
			"consumer": b.consumer, "topic": b.topic,
		})
	}
	return nil
}
