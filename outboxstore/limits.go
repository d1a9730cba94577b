package outboxstore

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// Bounds of an envelope, in bytes.
const (
	// MaxTopic bounds a topic.
	MaxTopic = 255
	// MaxText bounds each of tenant, idempotency key, ordering key, content type and source.
	MaxText = inbox.MaxID
	// DefaultMaxPayload bounds a payload, unless [MaxPayload] says otherwise.
	DefaultMaxPayload = 1 << 20
	// MaxMetadata bounds the keys and values of a message's metadata taken together.
	MaxMetadata = 64 << 10
)

// DefaultLockWait bounds how long Append waits for another transaction that has staged the same
// message and not ended yet.
const DefaultLockWait = 5 * time.Second

// Option changes a store.
type Option func(*limits)

// MaxPayload bounds payloads, in bytes. From 1 to 256 MiB; default [DefaultMaxPayload].
func MaxPayload(bytes int) Option { return func(l *limits) { l.payload = bytes } }

// LockWait bounds the wait for another transaction that has staged the same message. At least 1 ms;
// default [DefaultLockWait]. On SQLite the connection's busy timeout is the bound instead.
func LockWait(d time.Duration) Option { return func(l *limits) { l.lockWait = d } }

type limits struct {
	payload  int
	lockWait time.Duration
}

var defaultLimits = limits{payload: DefaultMaxPayload, lockWait: DefaultLockWait}

func (l limits) validate() error {
	var errs []error
	if l.payload < 1 || l.payload > 256<<20 {
		errs = append(errs, fmt.Errorf("outboxstore: MaxPayload is %d; use 1 to 268435456 bytes", l.payload))
	}
	if l.lockWait < time.Millisecond {
		errs = append(errs, fmt.Errorf("outboxstore: LockWait is %s; use at least 1ms", l.lockWait))
	}
	return errors.Join(errs...)
}

// check reports every fault of the envelopes at once, each with its index. Of a great many it
// shows the first ones.
func (l limits) check(envelopes []Envelope) error {
	const shown = 20
	var errs []error
	for i := range envelopes {
		for _, fault := range l.faults(&envelopes[i]) {
			if len(errs) == shown {
				return errors.Join(append(errs, errors.New("outboxstore: and more"))...)
			}
			errs = append(errs, fmt.Errorf("outboxstore: envelope %d: %w", i, fault))
		}
	}
	return errors.Join(errs...)
}

func (l limits) faults(e *Envelope) (faults []error) {
	invalid := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
	}
	if e.Topic == "" {
		invalid("Topic is empty")
	}
	for _, text := range []struct {
		field, value string
		bound        int
	}{
		{"Topic", e.Topic, MaxTopic}, {"Tenant", e.Tenant, MaxText}, {"IdempotencyKey", e.IdempotencyKey, MaxText},
		{"OrderingKey", e.OrderingKey, MaxText}, {"ContentType", e.ContentType, MaxText}, {"Source", e.Source, MaxText},
	} {
		if fault := inbox.TextFault(text.value, text.bound); fault != "" {
			invalid("%s %s", text.field, fault)
		}
	}
	for _, at := range []struct {
		field string
		value time.Time
	}{{"OccurredAt", e.OccurredAt}, {"DueAt", e.DueAt}} {
		if year := at.value.UTC().Year(); !at.value.IsZero() && (year < 1 || year > 9999) {
			invalid("%s lies in the year %d, years 1 to 9999 are allowed", at.field, year)
		}
	}
	if e.Message == nil {
		invalid("Message is nil")
		return faults
	}
	if e.Message.UUID == "" {
		faults = append(faults, fmt.Errorf("%w; make it with message.NewMessage(watermill.NewULID(), payload)", inbox.ErrNoMessageID))
	} else if fault := inbox.TextFault(e.Message.UUID, inbox.MaxID); fault != "" {
		faults = append(faults, fmt.Errorf("%w: it %s", inbox.ErrInvalidMessageID, fault))
	}
	if n := len(e.Message.Payload); n > l.payload {
		invalid("Message.Payload has %d bytes, at most %d are allowed; send a reference, or raise outboxstore.MaxPayload", n, l.payload)
	}
	if fault := metadataFault(e.Message.Metadata); fault != "" {
		invalid("Message.Metadata %s", fault)
	}
	return faults
}

func metadataFault(metadata map[string]string) string {
	total := 0
	var bad []string
	for key, value := range metadata {
		total += len(key) + len(value)
		for _, text := range []string{key, value} {
			if fault := inbox.TextFault(text, len(text)); fault != "" {
				bad = append(bad, fmt.Sprintf("at key %q %s", inbox.Clean(key, 64), fault))
			}
		}
	}
	if total > MaxMetadata {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", total, MaxMetadata)
	}
	sort.Strings(bad)
	return strings.Join(bad, ", ")
}
