package inboxstore

import (
	"context"
	"fmt"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// States of an inbox row.
const (
	stateFresh     = "fresh" // answered for a row that begin has just staged
	stateProcessed = "processed"
	stateDead      = "dead"
)

// findTries bounds how often TryBegin starts anew because the row it collided with was gone when
// it looked: rolled back or purged in between.
const findTries = 3

// TryBegin stages the message's row in the unit of work of ctx, as its first statement, and says
// what it found. [inbox.Fresh]: the row is staged, and stands or falls with the transaction.
// [inbox.Duplicate]: the message is handled already. [inbox.InFlight]: another delivery of it was
// still being handled after the lock wait; the transaction can only be rolled back then.
//
// A serialization failure is returned as the driver's error: a fresh transaction decides again.
func (s *Store) TryBegin(ctx context.Context, key inbox.Key) (inbox.Outcome, error) {
	if err := key.Validate(); err != nil {
		return inbox.InFlight, err
	}
	for range findTries {
		state, err := s.begin(ctx, key)
		if s.work.Class(err) == dialect.LockTimeout {
			return inbox.InFlight, nil
		}
		if err != nil {
			return inbox.InFlight, fmt.Errorf("inboxstore: begin: %w", err)
		}
		switch state {
		case stateFresh:
			return inbox.Fresh, nil
		case stateProcessed:
			return inbox.Duplicate, nil
		case stateDead:
			n, restored := 0, new(string)
			_, err := s.row(ctx, "revive", s.staging(key), &n, &restored)
			if s.work.Class(err) == dialect.LockTimeout {
				return inbox.InFlight, nil
			}
			if err != nil {
				return inbox.InFlight, fmt.Errorf("inboxstore: revive: %w", err)
			}
			if n == 1 {
				return inbox.Fresh, nil
			}
			// Another delivery was faster, or another message was handled under the business key.
			if state, err = s.find(ctx, key); err != nil {
				return inbox.InFlight, fmt.Errorf("inboxstore: find: %w", err)
			}
			if state == stateProcessed {
				return inbox.Duplicate, nil
			}
		}
	}
	return inbox.InFlight, nil
}

// begin inserts, and looks again when the row it collided with was not in its snapshot. At Read
// Committed the second statement sees what was committed while the first one waited.
func (s *Store) begin(ctx context.Context, key inbox.Key) (state string, err error) {
	var found, restored *string
	_, err = s.row(ctx, "begin", s.staging(key), &found, &restored)
	if err != nil || found != nil {
		return deref(found), err
	}
	return s.find(ctx, key)
}

// staging are the arguments of the statements that stage a row.
func (s *Store) staging(key inbox.Key) []any {
	return []any{lockBound(s.lockWait), key.Consumer, key.MessageID, key.Tenant, nullable(key.IdempotencyKey)}
}

func (s *Store) find(ctx context.Context, key inbox.Key) (state string, err error) {
	_, err = s.row(ctx, "find", []any{key.Consumer, key.MessageID, key.Tenant, nullable(key.IdempotencyKey)}, &state)
	return state, err
}

// Complete records that the handler has succeeded. In the transactional mode the row that TryBegin
// staged says so already, so this costs nothing; the commit makes it true.
func (s *Store) Complete(context.Context, inbox.Key) error { return nil }

// Abandon makes sure that a failed message will be handled again. Rolling back has removed its row
// in nearly every case; Abandon looks, in a fresh transaction, and returns false when the row
// stands all the same because something inside the handler committed it. A committed row is not
// taken back: what was committed with it would be done twice.
func (s *Store) Abandon(ctx context.Context, key inbox.Key) (bool, error) {
	var state string
	var found bool
	err := s.own(ctx, func(ctx context.Context) (err error) {
		found, err = s.row(ctx, "exists", []any{key.Consumer, key.MessageID}, &state)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("inboxstore: abandon: %w", err)
	}
	return !found || state == stateDead, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
