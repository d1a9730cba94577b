package outboxstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// MaxErrorLength is the greatest length, in bytes, of an error text that is kept with a row.
const MaxErrorLength = 2048

// Lease names a row and the claim under which it is held.
type Lease struct {
	// Seq is the row's number.
	Seq int64
	// Receipt is opaque and fresh with every claim. Keep it out of logs.
	Receipt string
}

// String names the row, without the receipt.
func (l Lease) String() string { return fmt.Sprintf("outbox row %d", l.Seq) }

// GoString is as String, so that no format shows the receipt.
func (l Lease) GoString() string { return l.String() }

// Release gives one row back.
type Release struct {
	Lease Lease
	// Delay is how long the row waits until it is due again. 0: it is due as it was, at its old
	// place in the order.
	Delay time.Duration
}

// Rejection counts a refusal of one row.
type Rejection struct {
	Lease Lease
	// Error says why. It is made valid UTF-8 and cut to [MaxErrorLength].
	Error string
	// Delay is how long the row waits until it is due again.
	Delay time.Duration
	// Allowed is the number of rejections at which the row is dead. At least 1.
	Allowed int
	// Hold keeps the lease until it expires, unless the row is dead. It is for a publisher that
	// panicked: the process may be about to end, and the row had better not follow it to the next.
	Hold bool
}

type wireLease struct {
	Seq     int64  `json:"seq"`
	Receipt string `json:"receipt"`
	Delay   int64  `json:"delay,omitempty"`
	Error   string `json:"error,omitempty"`
	Allowed int    `json:"allowed,omitempty"`
	Held    bool   `json:"held"`
}

// Complete marks rows as published and returns how many. keep leaves them in the table until they
// are purged, so that appending them again is recognised; otherwise they are deleted. Like
// [Store.Release], [Store.Renew] and [Store.Reject] it changes exactly those rows whose receipt is
// the current one, in one statement, and returns a [*LeaseLostError] that names the others. All
// four run to their end, at most 10 s, although ctx has been cancelled.
func (s *Store) Complete(ctx context.Context, leases []Lease, keep bool) (int, error) {
	statement := "complete"
	if !keep {
		statement = "remove"
	}
	return s.change(ctx, "complete", statement, plain(leases))
}

// Release gives rows back, without their owner and receipt. See [Store.Complete].
func (s *Store) Release(ctx context.Context, releases []Release) (int, error) {
	list := make([]wireLease, len(releases))
	for i, r := range releases {
		list[i] = wireLease{Seq: r.Lease.Seq, Receipt: r.Lease.Receipt, Delay: max(0, r.Delay.Microseconds())}
	}
	n, err := s.change(ctx, "release", "release", list)
	s.scan.appended(0) // they may be due at an old time
	return n, err
}

// Renew makes the leases end after the given time from now, by the database's clock. See
// [Store.Complete].
func (s *Store) Renew(ctx context.Context, leases []Lease, lease time.Duration) (int, error) {
	if lease < time.Millisecond {
		return 0, fmt.Errorf("outboxstore: renew: the lease is %s; use at least 1ms", lease)
	}
	return s.change(ctx, "renew", "renew", plain(leases), lease.Microseconds())
}

// Reject counts a refusal of each row. The row is due again after its delay, or dead. See
// [Store.Complete].
func (s *Store) Reject(ctx context.Context, rejections []Rejection) (int, error) {
	return s.change(ctx, "reject", "reject", rejected(rejections))
}

func rejected(rejections []Rejection) []wireLease {
	list := make([]wireLease, len(rejections))
	for i, r := range rejections {
		list[i] = wireLease{
			Seq: r.Lease.Seq, Receipt: r.Lease.Receipt, Delay: max(0, r.Delay.Microseconds()),
			Error: inbox.Clean(r.Error, MaxErrorLength), Allowed: max(1, r.Allowed), Held: r.Hold,
		}
		if list[i].Error == "" {
			list[i].Error = "rejected" // a dead row says why, and an empty text says nothing
		}
	}
	return list
}

func (s *Store) change(ctx context.Context, op, statement string, list []wireLease, more ...any) (int, error) {
	if len(list) == 0 {
		return 0, s.fault
	}
	text, err := encodeList(list)
	if err != nil {
		return 0, fmt.Errorf("outboxstore: %s: %w", op, err)
	}
	var changed map[int64]bool
	err = s.settle(ctx, func(ctx context.Context) error {
		changed = make(map[int64]bool, len(list))
		return s.rows(ctx, statement, append([]any{text}, more...), func(scan scanFunc) error {
			var seq int64
			defer func() { changed[seq] = true }()
			return scan(&seq)
		})
	}, uow.At(sql.LevelReadCommitted))
	if err != nil {
		return 0, fmt.Errorf("outboxstore: %s: %w", op, err)
	}
	return len(changed), lost(op, list, changed)
}

func lost(op string, list []wireLease, changed map[int64]bool) error {
	e := &LeaseLostError{Op: op, Asked: len(list)}
	for _, l := range list {
		if !changed[l.Seq] {
			e.Lost = append(e.Lost, Lease{Seq: l.Seq, Receipt: l.Receipt})
		}
	}
	if len(e.Lost) == 0 {
		return nil
	}
	return e
}

func plain(leases []Lease) []wireLease {
	list := make([]wireLease, len(leases))
	for i, l := range leases {
		list[i] = wireLease{Seq: l.Seq, Receipt: l.Receipt}
	}
	return list
}
