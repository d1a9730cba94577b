package outboxstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Outcome is what became of an envelope that was appended.
type Outcome int

const (
	// Enqueued means that the row is new. It stands or falls with the transaction.
	Enqueued Outcome = iota + 1
	// AlreadyEnqueued means that the message is in the outbox, or was and is still remembered.
	AlreadyEnqueued
)

// String gives the outcome's name as logs show it.
func (o Outcome) String() string {
	switch o {
	case Enqueued:
		return "enqueued"
	case AlreadyEnqueued:
		return "already enqueued"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Result says what became of one envelope.
type Result struct {
	Outcome Outcome
	// Envelope is the stored one. When it is new, this is the one given, with its own Message.
	Envelope Envelope
	// Seq is the row's number: rows of one ordering key are published in its order.
	Seq int64
	// Conflict is true when the stored message has another payload, although it has the same topic
	// and id, or the same tenant and idempotency key.
	Conflict bool
}

// errVanishing is what Append gives up with when rows it collides with are gone each time it looks.
var errVanishing = errors.New("outboxstore: append: rows of the same identity come and go; try again")

// appendTries bounds how often Append starts anew for that reason.
const appendTries = 5

// Append stages envelopes in the unit of work of ctx and returns one result for each, in the order
// given. Without a unit of work it returns uow.ErrNoTransaction. A message that is there already,
// by topic and id or by tenant and idempotency key, is no error, and at Read Committed leaves the
// transaction usable; above it, one that was committed after the transaction's snapshot is a
// serialization failure. A later envelope that repeats an earlier one reports the earlier one.
//
// Everything is checked before anything is written; see [ErrInvalid]. Any number of envelopes may
// be given. Of two transactions that stage the same message at a time, the second one waits for
// the end of the first, at most [LockWait].
func (s *Store) Append(ctx context.Context, envelopes ...Envelope) ([]Result, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	if _, err := s.work.Conn(ctx); err != nil {
		return nil, err
	}
	if err := s.limits.check(envelopes); err != nil || len(envelopes) == 0 {
		return nil, err
	}
	b := newBatch(envelopes)
	wanted := b.firsts
	for try := 0; len(wanted) > 0; try++ {
		if try == appendTries {
			return nil, errVanishing
		}
		if err := s.insert(ctx, b, wanted); err != nil {
			return nil, fmt.Errorf("outboxstore: append: %w", err)
		}
		if wanted = b.open(wanted); len(wanted) == 0 {
			break
		}
		if err := s.find(ctx, b, wanted); err != nil {
			return nil, fmt.Errorf("outboxstore: append: look-up of what was there: %w", err)
		}
		wanted = b.open(wanted) // purged or rolled back in between: insert again
	}
	b.repeat()
	if earliest, any := b.earliestDue(); any {
		if err := afterCommit(ctx, s.work, func() { s.scan.appended(earliest); s.wake.signal() }); err != nil {
			return nil, err
		}
	}
	return b.results, nil
}

// AppendTx is [Store.Append] in a transaction that the caller owns, a *sql.Tx or *sqlx.Tx. It is
// never committed here; when it fails, only its own rows are taken back. A forwarder of this
// process is not woken by the caller's commit, it finds the rows at its next poll.
func (s *Store) AppendTx(ctx context.Context, tx any, envelopes ...Envelope) (results []Result, err error) {
	err = s.work.Join(ctx, tx, func(ctx context.Context) error {
		results, err = s.Append(ctx, envelopes...)
		return err
	})
	return results, err
}

// AppendOwn is [Store.Append] in a transaction of its own, whatever ctx carries: the rows are
// committed when it returns nil. It runs anew after a serialization failure or a deadlock.
func (s *Store) AppendOwn(ctx context.Context, envelopes ...Envelope) (results []Result, err error) {
	err = s.own(ctx, func(ctx context.Context) error {
		results, err = s.Append(ctx, envelopes...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// batch is one call of Append on its way.
type batch struct {
	envelopes []Envelope
	results   []Result
	due       []int64 // of the rows that are new, in microseconds
	firsts    []int   // slots that repeat no earlier one
	earlier   map[int]int
}

func newBatch(envelopes []Envelope) *batch {
	b := &batch{envelopes: envelopes, results: make([]Result, len(envelopes)), earlier: map[int]int{}}
	if len(envelopes) == 1 {
		b.firsts = []int{0}
		return b
	}
	seen := make(map[identity]int, len(envelopes))
slots:
	for i := range envelopes {
		ids := envelopes[i].identities()
		for _, id := range ids {
			if first, repeats := seen[id]; repeats {
				b.earlier[i] = first
				continue slots
			}
		}
		for _, id := range ids {
			seen[id] = i
		}
		b.firsts = append(b.firsts, i)
	}
	return b
}

// open gives those of the slots that have no result yet.
func (b *batch) open(slots []int) []int {
	var open []int
	for _, i := range slots {
		if b.results[i].Outcome == 0 {
			open = append(open, i)
		}
	}
	return open
}

// stored records the row that slot i collided with.
func (b *batch) stored(i int, e Envelope, seq int64) {
	b.results[i] = Result{
		Outcome: AlreadyEnqueued, Envelope: e, Seq: seq,
		Conflict: !bytes.Equal(e.Message.Payload, b.envelopes[i].Message.Payload),
	}
}

// repeat gives the slots that repeat an earlier one its result.
func (b *batch) repeat() {
	for i, first := range b.earlier {
		b.stored(i, b.results[first].Envelope, b.results[first].Seq)
	}
}

func (b *batch) earliestDue() (earliest int64, any bool) {
	for i, due := range b.due {
		if i == 0 || due < earliest {
			earliest = due
		}
	}
	return earliest, len(b.due) > 0
}
