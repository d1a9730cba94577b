package middleware

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// Burier keeps messages that cannot be handled. The stores of package inboxstore fit.
type Burier interface {
	Bury(ctx context.Context, dead inbox.Dead) error
}

// Bury takes the place of the dead-letter path where no dead-letter topic is configured: a message
// whose id or business key cannot be kept is stored as a dead row, under the id "invalid-" and a
// ULID, and acknowledged. Nacked, it would come back for ever. Other errors pass.
func Bury(store Burier, cfg InboxConfig) message.HandlerMiddleware {
	cfg.setDefaults()
	count := newCounters(cfg.MeterProvider)
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if !unusable(err) {
				return produced, err
			}
			ctx := msg.Context()
			dead := inbox.Dead{
				Consumer:  cfg.Consumer(msg),
				MessageID: "invalid-" + watermill.NewULID(),
				Topic:     message.SubscribeTopicFromCtx(ctx),
				Payload:   msg.Payload,
				Metadata:  msg.Metadata,
				Error:     err.Error(),
			}
			if keepErr := store.Bury(ctx, dead); keepErr != nil {
				return nil, errors.Join(err, keepErr)
			}
			count.add(ctx, buried, dead.Consumer)
			cfg.Logger.Error("Message cannot be handled and is kept as a dead inbox row; mend its sender", err, watermill.LogFields{
				"message_uuid": dead.MessageID, "consumer": dead.Consumer, "topic": dead.Topic,
			})
			return nil, nil
		}
	}
}
