package router

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
)

// AddHandler adds a handler that returns messages, as Watermill's AddHandler does. With an outbox
// in force what it returns is staged in the outbox under publishTopic, in the handler's own
// transaction, and the forwarder publishes it by Config.Publisher: publisher is not used then, and
// may be nil.
func (r *Router) AddHandler(handlerName, subscribeTopic string, subscriber message.Subscriber, publishTopic string, publisher message.Publisher, handlerFunc message.HandlerFunc) *message.Handler {
	b := r.register(handlerName, subscribeTopic, subscriber)
	b.publisher, b.publishTopic = publisher, publishTopic
	b.require(subscriber != nil, handlerFunc != nil)
	return r.Router.AddHandler(handlerName, subscribeTopic, r.describe(b, subscriber), publishTopic, publisher, r.inner(handlerFunc))
}

// AddConsumerHandler adds a handler that returns no messages, as Watermill's AddConsumerHandler does.
func (r *Router) AddConsumerHandler(handlerName, subscribeTopic string, subscriber message.Subscriber, handlerFunc message.NoPublishHandlerFunc) *message.Handler {
	b := r.register(handlerName, subscribeTopic, subscriber)
	b.require(subscriber != nil, handlerFunc != nil)
	inner := r.inner(func(msg *message.Message) ([]*message.Message, error) { return nil, handlerFunc(msg) })
	return r.Router.AddConsumerHandler(handlerName, subscribeTopic, r.describe(b, subscriber), func(msg *message.Message) error {
		_, err := inner(msg)
		return err
	})
}

// RunHandlers starts handlers that were added while the router runs, as Watermill's RunHandlers does.
func (r *Router) RunHandlers(ctx context.Context) error {
	err := r.Router.RunHandlers(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	err = errors.Join(append(r.failures, err)...)
	r.failures = nil
	return err
}

// require notes what is nil, for the checks at the start.
func (b *binding) require(subscriber, function bool) {
	if !subscriber {
		b.missing = "subscriber"
	} else if !function {
		b.missing = "function"
	}
}

// register remembers the handler for the checks at the start.
func (r *Router) register(name, topic string, subscriber message.Subscriber) *binding {
	b := &binding{handler: name, topic: topic, subscriber: structName(subscriber), arranged: true}
	if d, ok := subscriber.(*described); ok {
		d.describe(b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registered = append(r.registered, b)
	return b
}

// describe hands what is known to the binding of the subscription. The subscriber's own settings
// are filled in by Configure's wrapper, further inward.
func (r *Router) describe(known *binding, subscriber message.Subscriber) message.Subscriber {
	return &described{Subscriber: subscriber, describe: func(b *binding) { *b = *known }}
}
