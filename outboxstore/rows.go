package outboxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// State is where a row stands. Every state has an exit: a pending row is claimed, the lease of a
// leased one ends, a forwarded one is purged, a dead one is requeued, discarded or purged.
type State string

// The states of a row.
const (
	// Pending rows wait, due or delayed.
	Pending State = "pending"
	// Leased rows are held by a forwarder.
	Leased State = "leased"
	// Forwarded rows are published, and kept so that appending them again is recognised.
	Forwarded State = "forwarded"
	// Dead rows were refused too often. They are kept with their last error.
	Dead State = "dead"
)

// Row is a row of the outbox as an operator sees it.
type Row struct {
	// Seq is the row's number. A row that is requeued gets a new one.
	Seq   int64
	State State
	// Envelope is the message. Its DueAt is the time from which the row may be claimed.
	Envelope Envelope
	// Attempt counts the claims, Rejections the refusals and panics, both since the row was
	// appended or requeued.
	Attempt, Rejections int
	// LastError is the last refusal. It stays when the row is requeued.
	LastError string
	// Owner is the forwarder that holds a leased row until LeaseUntil.
	Owner      string
	LeaseUntil time.Time
	// FinishedAt is when the row was published or died.
	FinishedAt time.Time
	// Fault, unless nil, says why the row cannot be decoded: somebody else wrote it.
	Fault error
}

// Filter selects rows: those that fit everything that is set. The zero value selects all.
type Filter struct {
	State                      State
	Topic, Tenant, OrderingKey string
	// Error is a part of the last error's text.
	Error string
	// Age is how long ago the row was finished or, where it is not, became due. By the database's
	// clock.
	Age time.Duration
	// After is the number after which rows are listed: that of the last row of the page before.
	After int64
	// Limit is the size of a page, at most [MaxPage]. Default: 100.
	Limit int
}

// MaxPage is the greatest number of rows that are listed, requeued or discarded at a time.
const MaxPage = 1000

func (f *Filter) prepare() error {
	if f.Limit == 0 {
		f.Limit = 100
	}
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("outboxstore: Filter."+format, args...))
	}
	if !slices.Contains([]State{"", Pending, Leased, Forwarded, Dead}, f.State) {
		fault("State is %q; use one of the states, or none", inbox.Clean(string(f.State), 64))
	}
	for _, text := range []struct{ field, value string }{
		{"Topic", f.Topic}, {"Tenant", f.Tenant}, {"OrderingKey", f.OrderingKey}, {"Error", f.Error},
	} {
		if found := inbox.TextFault(text.value, MaxErrorLength); found != "" {
			fault("%s %s", text.field, found)
		}
	}
	if f.Age < 0 {
		fault("Age is %s; use at least 0", f.Age)
	}
	if f.Limit < 1 || f.Limit > MaxPage {
		fault("Limit is %d; use 1 to %d", f.Limit, MaxPage)
	}
	return errors.Join(errs...)
}

// ErrNoRow is returned by Read when there is no row of that number: there never was one, it was
// requeued under a new number, or it was deleted.
var ErrNoRow = errors.New("outboxstore: there is no such row")

// Changed says how many rows an operation was asked to change, and how many it changed.
type Changed struct{ Asked, Changed int }

// List gives one page of rows in order of their numbers, without their payloads: [Store.Read] has
// those. What it costs does not depend on the number of forwarded rows when it is asked for another
// state.
func (s *Store) List(ctx context.Context, filter Filter) ([]Row, error) {
	rows, err := s.list(ctx, filter, false)
	if err != nil {
		return nil, fmt.Errorf("outboxstore: list: %w", err)
	}
	return rows, nil
}

// Read gives one row with its payload, or ErrNoRow.
func (s *Store) Read(ctx context.Context, seq int64) (Row, error) {
	rows, err := s.list(ctx, Filter{After: seq - 1, Limit: 1}, true)
	switch {
	case err != nil:
		return Row{}, fmt.Errorf("outboxstore: read: %w", err)
	case len(rows) == 0 || rows[0].Seq != seq:
		return Row{}, ErrNoRow
	}
	return rows[0], nil
}

func (s *Store) list(ctx context.Context, f Filter, payload bool) (found []Row, err error) {
	if err := f.prepare(); err != nil {
		return nil, err
	}
	args := []any{string(f.State), f.After, f.Topic, f.Tenant, f.OrderingKey, f.Error, f.Age.Microseconds(), f.Limit, payload}
	err = s.own(ctx, func(ctx context.Context) error {
		found = nil
		return s.rows(ctx, "list", args, func(scan scanFunc) error {
			var r record
			var row Row
			var state string
			var owner, lastError *string
			var until, finished *int64
			err := scan(append(r.dest(), &state, &row.Attempt, &row.Rejections, &owner, &until, &lastError, &finished)...)
			if err != nil {
				return err
			}
			row.Seq, row.State, row.Owner, row.LastError = r.seq, State(state), value(owner), value(lastError)
			row.LeaseUntil, row.FinishedAt = timeOf(until), timeOf(finished)
			row.Envelope, row.Fault = r.envelope()
			found = append(found, row)
			return nil
		})
	}, uow.At(sql.LevelReadCommitted))
	return found, err
}

// Requeue makes dead rows pending again, due at once, with no claim and no rejection on record; the
// last error stays. Each gets a new number and so goes last in its ordering key, behind rows that
// were appended after it; among themselves they keep their order. Rows that are not dead are left
// alone and not counted as changed: what is published is not published again by this.
func (s *Store) Requeue(ctx context.Context, seqs ...int64) (Changed, error) {
	changed, err := s.operate(ctx, "requeue", seqs)
	if changed.Changed > 0 {
		s.scan.appended(0)
		s.wake.signal()
	}
	return changed, err
}

// RequeueAll requeues one page of the dead rows that a filter selects. Call it until it was asked
// for less than the filter's limit, with the filter's Age set if rows may die again meanwhile.
func (s *Store) RequeueAll(ctx context.Context, filter Filter) (Changed, error) {
	return onDead(ctx, filter, s.List, s.Requeue)
}

// Discard deletes dead rows. Rows that are not dead are left alone and not counted as changed.
func (s *Store) Discard(ctx context.Context, seqs ...int64) (Changed, error) {
	return s.operate(ctx, "discard", seqs)
}

// DiscardAll discards one page of the dead rows that a filter selects; see [Store.RequeueAll].
func (s *Store) DiscardAll(ctx context.Context, filter Filter) (Changed, error) {
	return onDead(ctx, filter, s.List, s.Discard)
}

// operate runs a statement on dead rows, a page of them a transaction.
func (s *Store) operate(ctx context.Context, statement string, seqs []int64) (Changed, error) {
	seqs = distinct(seqs)
	total := Changed{Asked: len(seqs)}
	for page := range slices.Chunk(seqs, MaxPage) {
		list, err := encodeList(page)
		if err != nil {
			return total, err
		}
		changed := 0
		err = s.own(ctx, func(ctx context.Context) error {
			changed = 0
			return s.rows(ctx, statement, []any{list}, func(scan scanFunc) error {
				changed++
				var seq int64
				return scan(&seq)
			})
		}, uow.At(sql.LevelReadCommitted))
		if err != nil {
			return total, fmt.Errorf("outboxstore: %s: %w", statement, err)
		}
		total.Changed += changed
	}
	return total, s.fault
}

// onDead applies an operation to the dead rows that a filter selects.
func onDead(
	ctx context.Context, filter Filter,
	list func(context.Context, Filter) ([]Row, error), operation func(context.Context, ...int64) (Changed, error),
) (Changed, error) {
	if filter.State != "" && filter.State != Dead {
		return Changed{}, fmt.Errorf("outboxstore: Filter.State is %q; only dead rows can be requeued or discarded", filter.State)
	}
	filter.State = Dead
	rows, err := list(ctx, filter)
	if err != nil {
		return Changed{}, err
	}
	seqs := make([]int64, len(rows))
	for i, row := range rows {
		seqs[i] = row.Seq
	}
	return operation(ctx, seqs...)
}

// distinct sorts numbers, so that two operations lock rows in one order.
func distinct(seqs []int64) []int64 {
	seqs = slices.Clone(seqs)
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

func timeOf(us *int64) time.Time {
	if us == nil {
		return time.Time{}
	}
	return time.UnixMicro(*us).UTC()
}
