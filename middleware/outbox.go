package middleware

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrNoPublishTopic is returned when a handler returned messages and nothing says where they go.
var ErrNoPublishTopic = errors.New("outbox: the handler returned messages, but it has no publish topic; add it with AddHandler and a topic")

// Stager is what [Outbox] needs of an outbox. The stores of package outboxstore fit.
type Stager interface {
	// Stage writes the messages into the unit of work of ctx.
	Stage(ctx context.Context, topic string, messages ...*message.Message) error
}

// Outbox stages the messages that the handler returns in the outbox, in the handler's own unit of
// work and under its publish topic, and gives the router none to publish. Watermill publishes them
// after the middlewares, so after the commit, and a crash in between would lose them.
func Outbox(outbox Stager) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err != nil || len(produced) == 0 {
				return nil, err
			}
			topic := message.PublishTopicFromCtx(msg.Context())
			if topic == "" {
				return nil, ErrNoPublishTopic
			}
			return nil, outbox.Stage(msg.Context(), topic, produced...)
		}
	}
}
