package inboxstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// MaxErrorLength is the greatest length, in bytes, of an error text that is kept with a row.
const MaxErrorLength = 2048

// Bury keeps a message that cannot be handled as a dead row, in a transaction of its own. A row
// that is there already is left as it is.
func (s *Store) Bury(ctx context.Context, d inbox.Dead) error {
	if err := (inbox.Key{Consumer: d.Consumer, MessageID: d.MessageID}).Validate(); err != nil {
		return err
	}
	metadata, err := json.Marshal(clean(d.Metadata))
	if err != nil {
		return fmt.Errorf("inboxstore: bury: metadata: %w", err)
	}
	payload := d.Payload
	if payload == nil {
		payload = []byte{} // an empty payload is a payload; NULL is for rows without one
	}
	err = s.own(ctx, func(ctx context.Context) error {
		_, err := s.exec(ctx, "bury", d.Consumer, d.MessageID, inbox.Clean(d.Topic, inbox.MaxID), payload,
			string(metadata), inbox.Clean(d.Error, MaxErrorLength))
		return err
	})
	if err != nil {
		return fmt.Errorf("inboxstore: bury: %w", err)
	}
	return nil
}

// clean makes metadata of foreign messages fit for a text column.
func clean(metadata map[string]string) map[string]string {
	const bound = 64 << 10
	out := make(map[string]string, len(metadata))
	for k, v := range metadata {
		out[inbox.Clean(k, inbox.MaxID)] = inbox.Clean(v, bound)
	}
	return out
}
