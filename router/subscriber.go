package router

import (
	"context"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// SubscriberConfig are the settings of one subscriber. Zero fields mean the router's settings. The
// functions must be pure and safe for concurrent use.
type SubscriberConfig struct {
	// Consumer is the name under which messages are remembered. Keep it from release to release:
	// a renamed consumer handles every message anew. Default: the handler's name.
	Consumer string
	// MessageID gives the message's id. Default: its UUID.
	MessageID func(*message.Message) string
	// IdempotencyKey gives a second identity that the business knows, or "" for none, and the
	// tenant that scopes it. Default: none.
	IdempotencyKey func(*message.Message) (tenant, key string)
	// EnableInbox and EnableOutbox win over the router's. Default: Auto, the router's setting.
	EnableInbox, EnableOutbox Switch
}

// Configure gives a subscriber settings of its own, wherever it is then used: with AddHandler or
// in a Watermill cqrs processor. Of two around one subscriber the outer one counts. Let it be the
// outermost wrapper of a subscriber that the router's own methods get: their checks at the start
// see no deeper.
func Configure(subscriber message.Subscriber, cfg SubscriberConfig) message.Subscriber {
	return &described{Subscriber: subscriber, describe: func(b *binding) {
		if !b.configured {
			b.cfg, b.configured = cfg, true
		}
	}}
}

// described tells the router about the subscriber that it wraps. Watermill's router hands our
// decorator only its own wrapper, so the description travels the other way: the decorator puts an
// empty binding into the context of Subscribe, and every wrapper on the way inward fills its part.
type described struct {
	message.Subscriber
	describe func(*binding)
}

func (d *described) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if b := bindingFrom(ctx); b != nil {
		d.describe(b)
	}
	return d.Subscriber.Subscribe(ctx, topic)
}

// String is the wrapped subscriber's name, so that Watermill's logs and metrics keep it.
func (d *described) String() string { return structName(d.Subscriber) }

// structName names a type as Watermill's contexts do.
func structName(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return strings.TrimLeft(fmt.Sprintf("%T", v), "*")
}

// goChannel is the one transport that cannot redeliver after a crash: what it holds dies with the
// process. Everything else, also a wrapped GoChannel, counts as a broker.
const goChannel = "gochannel.GoChannel"

// binding is what the router knows of one subscription.
type binding struct {
	topic string
	// handler and publishes are known at the start for handlers that were added by the router's
	// own methods; for others the handler's name comes with the first message.
	handler      string
	subscriber   string
	publisher    message.Publisher
	publishTopic string
	cfg          SubscriberConfig
	configured   bool
	missing      string // what the handler was added without: "subscriber", "function"
	arranged     bool   // the inner middlewares are around its function already

	consumer      string
	inbox, outbox bool
}

type bindingKey struct{}

func bindingFrom(ctx context.Context) *binding {
	b, _ := ctx.Value(bindingKey{}).(*binding)
	return b
}

// resolve settles the switches. An unknown subscriber counts as a broker.
func (r *Router) resolve(b *binding) {
	redelivers := b.subscriber != goChannel
	b.inbox = r.cfg.Inbox != nil && decide(b.cfg.EnableInbox, r.cfg.EnableInbox, redelivers)
	b.outbox = r.cfg.Outbox != nil && decide(b.cfg.EnableOutbox, r.cfg.EnableOutbox, redelivers)
	b.consumer = b.cfg.Consumer
	if b.consumer == "" {
		b.consumer = b.handler
	}
}

// meet completes the binding of a handler that was added past the router's own methods, by what
// Watermill says in the context of the first message.
func (r *Router) meet(b *binding, msg *message.Message) error {
	if b.handler != "" {
		return nil
	}
	b.handler = message.HandlerNameFromCtx(msg.Context())
	b.subscriber = message.SubscriberNameFromCtx(msg.Context())
	r.resolve(b)
	return r.claim(b)
}

// claim takes the consumer's name for a subscription. A name is one consumer's: with a second one
// each would skip what the other has handled.
func (r *Router) claim(b *binding) error {
	if !b.inbox || b.consumer == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.consumers[b.consumer]; other != nil && other != b {
		return fmt.Errorf("router: the consumer name %q of topic %q is taken by a handler of topic %q: the second would skip what the first has handled; give each its own", b.consumer, b.topic, other.topic)
	}
	r.consumers[b.consumer] = b
	return nil
}
