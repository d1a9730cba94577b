package outboxstore

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// wireRow is a row on its way into the database. The names are those that outbox.sql uses.
type wireRow struct {
	N        int     `json:"n"`     // place in the order given
	Place    int     `json:"place"` // place in the order of inserting
	Seq      *int64  `json:"seq"`   // null: the statement takes a number
	Topic    string  `json:"topic"`
	ID       string  `json:"id"`
	Tenant   string  `json:"tenant"`
	Key      *string `json:"key"`
	Ordering *string `json:"ordering"`
	Payload  string  `json:"payload"` // hexadecimal: JSON holds no bytes
	Metadata string  `json:"metadata"`
	Type     *string `json:"type"`
	Source   *string `json:"source"`
	Occurred *int64  `json:"occurred"`
	Due      *int64  `json:"due"`
}

// wireIdentity asks for the row of an envelope.
type wireIdentity struct {
	N      int     `json:"n"`
	Topic  string  `json:"topic"`
	ID     string  `json:"id"`
	Tenant string  `json:"tenant"`
	Key    *string `json:"key"`
}

func encodeRow(e *Envelope, metadata string) wireRow {
	return wireRow{
		Topic: e.Topic, ID: e.Message.UUID, Tenant: e.Tenant, Key: optional(e.IdempotencyKey), Ordering: optional(e.OrderingKey),
		Payload: hex.EncodeToString(e.Message.Payload), Metadata: metadata,
		Type: optional(e.ContentType), Source: optional(e.Source), Occurred: micros(e.OccurredAt), Due: micros(e.DueAt),
	}
}

// encodeMetadata writes an object whose text is close to what was sent: HTML is nothing special.
func encodeMetadata(metadata map[string]string) (string, error) {
	if len(metadata) == 0 {
		return "{}", nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(metadata); err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(out.Bytes())), nil
}

// encodeList writes rows or leases as the one parameter in which they travel.
func encodeList(list any) (string, error) {
	text, err := json.Marshal(list)
	return string(text), err
}

// record is a row as the statements find and claim return it.
type record struct {
	seq                          int64
	topic, id, tenant            string
	key, ordering, ctype, source *string
	payload                      []byte
	metadata                     string
	occurred                     *int64
	due                          int64
}

func (r *record) dest() []any {
	return []any{&r.seq, &r.topic, &r.id, &r.tenant, &r.key, &r.ordering, &r.payload, &r.metadata, &r.ctype, &r.source, &r.occurred, &r.due}
}

// envelope makes the row's envelope. The error is metadata that no Append has written; the
// envelope is complete but for them.
func (r *record) envelope() (Envelope, error) {
	m := message.NewMessage(r.id, r.payload)
	e := Envelope{
		Topic: r.topic, Message: m, Tenant: r.tenant, IdempotencyKey: value(r.key), OrderingKey: value(r.ordering),
		ContentType: value(r.ctype), Source: value(r.source), DueAt: time.UnixMicro(r.due).UTC(),
	}
	if r.occurred != nil {
		e.OccurredAt = time.UnixMicro(*r.occurred).UTC()
	}
	if err := json.Unmarshal([]byte(r.metadata), &m.Metadata); err != nil {
		m.Metadata = message.Metadata{}
		return e, fmt.Errorf("outboxstore: metadata of row %d cannot be decoded: %w", r.seq, err)
	}
	if m.Metadata == nil {
		m.Metadata = message.Metadata{}
	}
	return e, nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func value(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func micros(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	us := t.UnixMicro()
	return &us
}
