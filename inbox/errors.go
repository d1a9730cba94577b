package inbox

import "errors"

// Errors that are not the message's fault. The retry policy and the dead-letter path leave them
// alone; the broker delivers the message again.
var (
	// ErrInFlight is returned while another delivery of the message is being handled.
	ErrInFlight = errors.New("inbox: another delivery of this message is being handled")
	// ErrInterrupted is returned when the delivery's context ended or the router closed.
	ErrInterrupted = errors.New("inbox: handling was interrupted")
	// ErrStore is returned when the inbox itself could not be read or written, so that the handler
	// has not run.
	ErrStore = errors.New("inbox: the inbox could not be read or written")
	// ErrPhantom is returned for a delivery without id, payload and metadata: a closing AMQP
	// channel yields such a thing, nobody sent it.
	ErrPhantom = errors.New("inbox: the delivery is empty, it is no message")
)

// Errors of a key, which no retry can mend.
var (
	// ErrNoMessageID is returned for a message without an id, as foreign producers send it.
	ErrNoMessageID = errors.New("inbox: the message has no id")
	// ErrInvalidMessageID is returned for an id that a database cannot keep.
	ErrInvalidMessageID = errors.New("inbox: the message id is invalid")
	// ErrInvalidKey is returned for a consumer, tenant or idempotency key that a database cannot keep.
	ErrInvalidKey = errors.New("inbox: the key is invalid")
)

// Transient reports whether err is one of the errors that are not the message's fault.
func Transient(err error) bool {
	return errors.Is(err, ErrInFlight) || errors.Is(err, ErrInterrupted) || errors.Is(err, ErrStore) || errors.Is(err, ErrPhantom)
}
