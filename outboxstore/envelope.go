package outboxstore

import (
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Envelope is a message on its way to a topic. Only Topic and Message are required. Text is UTF-8
// without NUL; see the bounds [MaxTopic], [MaxText], [DefaultMaxPayload] and [MaxMetadata].
type Envelope struct {
	// Topic is where the message goes. Topic and message id are its identity: one message may go
	// to two topics.
	Topic string
	// Message is what is published: id, payload and metadata arrive as they are. They are copied
	// when the envelope is appended.
	Message *message.Message
	// IdempotencyKey, unless empty, is a second identity, given by the business: another message of
	// the same tenant and key is the same message. Tenant scopes it; no tenant is the tenant "".
	Tenant, IdempotencyKey string
	// OrderingKey, unless empty, makes the message wait until all earlier ones of its key are
	// published or dead.
	OrderingKey string
	// ContentType and Source (the producing module) reach the broker as metadata; see
	// [MetadataContentType].
	ContentType, Source string
	// OccurredAt is when it happened, to the microsecond. Zero: nothing is said. The message is
	// due at this time if it is past, so undelayed messages come in order of occurrence.
	OccurredAt time.Time
	// DueAt is the time before which the message is not published. Zero: at once.
	DueAt time.Time
}

// NewMessage makes an envelope that is checked against the default bounds and shares nothing with
// e: payload and metadata are copied. A message without an id gets a ULID, which is in order of
// time and so keeps the outbox's index small; an OccurredAt that is zero becomes now. It reports
// every fault at once, each an [ErrInvalid] or an error of package inbox.
func NewMessage(e Envelope) (Envelope, error) {
	e = e.copy()
	if e.Message != nil && e.Message.UUID == "" {
		e.Message.UUID = watermill.NewULID()
	}
	if e.OccurredAt.IsZero() {
		e.OccurredAt = time.Now().UTC().Truncate(time.Microsecond)
	}
	if err := defaultLimits.check([]Envelope{e}); err != nil {
		return Envelope{}, err
	}
	return e, nil
}

// copy gives the envelope a message of its own, with the context of the given one.
func (e Envelope) copy() Envelope {
	if e.Message == nil {
		return e
	}
	m := message.NewMessage(e.Message.UUID, slices.Clone(e.Message.Payload))
	m.SetContext(e.Message.Context())
	m.Metadata = maps.Clone(e.Message.Metadata)
	if m.Metadata == nil {
		m.Metadata = message.Metadata{}
	}
	e.Message = m
	return e
}

// identity is a message id of a topic or an idempotency key of a tenant.
type identity struct{ kind, scope, value string }

func (e *Envelope) identities() []identity {
	ids := []identity{{"id", e.Topic, e.Message.UUID}}
	if e.IdempotencyKey != "" {
		ids = append(ids, identity{"key", e.Tenant, e.IdempotencyKey})
	}
	return ids
}

// compare is the order in which rows are inserted. Transactions that stage the same messages in
// different order all take them in this one, so none waits for another in a circle. A row with an
// idempotency key goes by that, because repeats of business keys come under fresh ids.
func (e *Envelope) compare(o *Envelope) int {
	a, b := e.identities(), o.identities()
	x, y := a[len(a)-1], b[len(b)-1]
	for _, pair := range [][2]string{{x.kind, y.kind}, {x.scope, y.scope}, {x.value, y.value}} {
		switch {
		case pair[0] < pair[1]:
			return -1
		case pair[0] > pair[1]:
			return 1
		}
	}
	return 0
}
