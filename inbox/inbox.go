// Package inbox holds the words that the middleware and the stores share: what identifies a
// message for a consumer, what the inbox answers, and the errors with which a delivery is refused.
// It imports nothing but the standard library.
package inbox

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxID is the greatest length, in bytes, of a message id, a consumer's name, a tenant and an
// idempotency key.
const MaxID = 255

// Key identifies a message for one consumer. Everything is compared byte by byte.
type Key struct {
	// Consumer is the stable name of the handler: renaming it makes it a new consumer, which
	// handles every message anew.
	Consumer string
	// MessageID is the message's own id.
	MessageID string
	// IdempotencyKey, unless empty, is a second identity, given by the business: another message
	// with the same consumer, tenant and key is a duplicate.
	IdempotencyKey string
	// Tenant scopes IdempotencyKey. No tenant is the tenant "".
	Tenant string
}

// Dead is a message that could not be handled and is kept with the reason.
type Dead struct {
	Consumer, MessageID string
	// Topic is where the message came from.
	Topic    string
	Payload  []byte
	Metadata map[string]string
	// Error says why it could not be handled. Stores clean it and cut it.
	Error string
}

// Outcome is what the inbox answers to a delivery.
type Outcome int

const (
	// Fresh means that the consumer has not handled the message: run the handler.
	Fresh Outcome = iota
	// Duplicate means that it has: acknowledge and skip.
	Duplicate
	// InFlight means that another delivery of the message is being handled right now.
	InFlight
)

// String gives the outcome's name as logs show it.
func (o Outcome) String() string {
	switch o {
	case Fresh:
		return "fresh"
	case Duplicate:
		return "duplicate"
	case InFlight:
		return "in flight"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Validate checks every part of the key against the bounds that all databases share.
func (k Key) Validate() error {
	if k.MessageID == "" {
		return fmt.Errorf("%w; mend its sender, or name another source of the id in MessageID", ErrNoMessageID)
	}
	if fault := TextFault(k.MessageID, MaxID); fault != "" {
		return fmt.Errorf("%w: it %s", ErrInvalidMessageID, fault)
	}
	if k.Consumer == "" {
		return fmt.Errorf("%w: the consumer is empty; give the handler a name", ErrInvalidKey)
	}
	for _, part := range []struct{ name, value string }{
		{"consumer", k.Consumer}, {"tenant", k.Tenant}, {"idempotency key", k.IdempotencyKey},
	} {
		if fault := TextFault(part.value, MaxID); fault != "" {
			return fmt.Errorf("%w: the %s %s", ErrInvalidKey, part.name, fault)
		}
	}
	return nil
}

// TextFault says in words what keeps text from being stored, or "" when nothing does: more than
// bound bytes, invalid UTF-8, or a NUL, which Postgres refuses.
func TextFault(text string, bound int) string {
	switch {
	case len(text) > bound:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(text), bound)
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	case strings.IndexByte(text, 0) >= 0:
		return "holds a NUL byte"
	}
	return ""
}

// Clean makes text from outside fit to be stored, logged or sent in a header: valid UTF-8, without
// NUL, at most bound bytes and an ellipsis.
func Clean(text string, bound int) string {
	cut := text
	if len(cut) > bound {
		cut = cut[:bound]
	}
	cut = strings.ReplaceAll(strings.ToValidUTF8(cut, "?"), "\x00", "?")
	if len(text) > bound {
		cut += "…"
	}
	return cut
}
