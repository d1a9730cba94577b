package outboxstore

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

type detailsKey struct{}

// WithDetails puts what e says besides topic and message on the message's context, where the
// drop-in publisher finds it. It replaces what was there. It says it of this message only: another
// one that is given the same context, as a handler's answer often is, inherits nothing.
func WithDetails(msg *message.Message, e Envelope) {
	e.Topic, e.Message = "", msg
	msg.SetContext(context.WithValue(msg.Context(), detailsKey{}, e))
}

// WithOrderingKey puts an ordering key on the message's context; see [WithDetails].
func WithOrderingKey(msg *message.Message, key string) {
	e := FromMessage("", msg)
	e.OrderingKey = key
	WithDetails(msg, e)
}

// WithIdempotencyKey puts an idempotency key and its tenant on the message's context; see
// [WithDetails].
func WithIdempotencyKey(msg *message.Message, tenant, key string) {
	e := FromMessage("", msg)
	e.Tenant, e.IdempotencyKey = tenant, key
	WithDetails(msg, e)
}

// WithDueAt puts the time before which the message is not published on its context; see
// [WithDetails].
func WithDueAt(msg *message.Message, at time.Time) {
	e := FromMessage("", msg)
	e.DueAt = at
	WithDetails(msg, e)
}

// FromMessage makes the envelope of a message from what its context carries. A message that the
// forwarder hands to a publisher carries it too.
func FromMessage(topic string, msg *message.Message) Envelope {
	e, _ := msg.Context().Value(detailsKey{}).(Envelope)
	if e.Message != msg {
		e = Envelope{}
	}
	e.Topic, e.Message = topic, msg
	return e
}
