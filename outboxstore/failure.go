package outboxstore

import "errors"

// What a publisher may say of a failure, for the [Forwarder]. A failure that says nothing is a
// rejection only if another row was published meanwhile; otherwise the broker counts as down.
var (
	// ErrRejected is the class of failures that are the message's fault: it is too large, its
	// exchange does not exist, nothing is bound to it. It spends a rejection.
	ErrRejected = errors.New("outboxstore: the message was rejected")
	// ErrUnavailable is the class of failures that are not: the broker is down, or blocks its
	// publishers. It spends nothing; claiming pauses.
	ErrUnavailable = errors.New("outboxstore: the broker is unavailable")
)

// Rejected marks err, unless nil, as an [ErrRejected]. Its text stays as it is.
func Rejected(err error) error { return classify(err, ErrRejected) }

// Unavailable marks err, unless nil, as an [ErrUnavailable]. Its text stays as it is.
func Unavailable(err error) error { return classify(err, ErrUnavailable) }

func classify(err, class error) error {
	if err == nil {
		return nil
	}
	return &classified{error: err, class: class}
}

type classified struct {
	error
	class error
}

// Unwrap gives the failure and its class.
func (c *classified) Unwrap() []error { return []error{c.error, c.class} }
