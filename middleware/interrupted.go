package middleware

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// Interrupted marks a failure as [inbox.ErrInterrupted] when the delivery's own context has ended,
// which a handler's own time-out has not. It belongs between the dead-letter path and Watermill's
// Retry: a context that ends while Retry pauses comes out of it as a bare context.Canceled. A
// handler that ends its goroutine leaves nobody to settle the message, so it is nacked here.
func Interrupted(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		returned := false
		defer func() {
			if !returned {
				msg.Nack()
			}
		}()
		produced, err := next(msg)
		returned = true
		if err != nil && ctx.Err() != nil && !inbox.Transient(err) {
			return nil, fmt.Errorf("%w: %w", inbox.ErrInterrupted, err)
		}
		return produced, err
	}
}
