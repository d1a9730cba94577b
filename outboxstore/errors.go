package outboxstore

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of appending.
var (
	// ErrInvalid is returned for an envelope that a database cannot keep: a topic, text, payload or
	// metadata beyond its bound. Ids that cannot be kept are inbox.ErrNoMessageID and
	// inbox.ErrInvalidMessageID. Nothing has been written, and the transaction is usable.
	ErrInvalid = errors.New("outboxstore: the envelope is invalid")
	// ErrConflict is returned by the drop-in publisher when a message with the same topic and id but
	// another payload, or one with the same idempotency key but another topic, is in the outbox
	// already: the new one would vanish.
	ErrConflict = errors.New("outboxstore: another message with this identity is in the outbox")
)

// Errors of leases.
var (
	// ErrLeaseLost is returned when some of the rows named were not held under the receipt given:
	// the lease had expired and another forwarder has the row, or it is finished. The other rows
	// were changed. The error is a [*LeaseLostError].
	ErrLeaseLost = errors.New("outboxstore: the lease is lost")
)

// LeaseLostError says which leases were not the current ones. It is an [ErrLeaseLost].
type LeaseLostError struct {
	// Op is the operation: "complete", "release", "renew" or "reject".
	Op string
	// Asked is how many rows were named, Lost are those that were not changed.
	Asked int
	Lost  []Lease
}

func (e *LeaseLostError) Error() string {
	const shown = 5
	var seqs []string
	for _, l := range e.Lost[:min(shown, len(e.Lost))] {
		seqs = append(seqs, fmt.Sprint(l.Seq))
	}
	more := ""
	if len(e.Lost) > shown {
		more = ", …"
	}
	return fmt.Sprintf("%v: %s of %d rows did not change %d of them (%s%s)",
		ErrLeaseLost, e.Op, e.Asked, len(e.Lost), strings.Join(seqs, ", "), more)
}

// Unwrap gives ErrLeaseLost.
func (e *LeaseLostError) Unwrap() error { return ErrLeaseLost }
