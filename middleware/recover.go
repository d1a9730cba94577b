package middleware

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// Recover makes a panic an error that the retry policy and the dead-letter path see. It belongs
// outside [UnitOfWork], which rolls back while the panic passes.
func Recover(next message.HandlerFunc) message.HandlerFunc {
	next = middleware.Recoverer(next)
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		produced, err := next(msg)
		msg.SetContext(ctx) // a panic may have left a middleware's context behind
		return produced, err
	}
}

// ShouldRetry is for Watermill's Retry: an error that is not the message's fault goes back to the
// broker, one that no retry can mend goes straight to the dead-letter path.
func ShouldRetry(params middleware.RetryParams) bool {
	return !inbox.Transient(params.Err) && !unusable(params.Err)
}

// ShouldDeadLetter is for Watermill's PoisonQueueWithFilter: only errors that are the message's
// fault qualify.
func ShouldDeadLetter(err error) bool { return !inbox.Transient(err) }

// ShortErrors cuts the text of errors to 1 KiB of valid UTF-8, because logs show it and the
// dead-letter path puts it into a header of the message. The error's identity stays.
func ShortErrors(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err != nil {
			err = shortError{err}
		}
		return produced, err
	}
}

const shortErrorLength = 1024

type shortError struct{ error }

func (e shortError) Error() string { return inbox.Clean(e.error.Error(), shortErrorLength) }
func (e shortError) Unwrap() error { return e.error }
