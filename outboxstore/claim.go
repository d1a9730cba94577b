package outboxstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// ClaimRequest asks for rows to publish.
type ClaimRequest struct {
	// Owner names the forwarder, for whoever looks at the table. Required, at most [MaxText] bytes.
	Owner string
	// Limit is how many rows are leased at most. At least 1.
	Limit int
	// Lease is how long they are leased, by the database's clock. At least 1 ms.
	Lease time.Duration
	// PerKey is how many rows of one ordering key are leased at most. Default: Limit.
	PerKey int
}

func (r *ClaimRequest) validate() error {
	if r.PerKey == 0 {
		r.PerKey = r.Limit
	}
	var errs []error
	if r.Owner == "" || len(r.Owner) > MaxText {
		errs = append(errs, fmt.Errorf("outboxstore: ClaimRequest.Owner has %d bytes; use 1 to %d", len(r.Owner), MaxText))
	}
	if r.Limit < 1 || r.PerKey < 1 {
		errs = append(errs, fmt.Errorf("outboxstore: ClaimRequest.Limit is %d and PerKey %d; use at least 1", r.Limit, r.PerKey))
	}
	if r.Lease < time.Millisecond {
		errs = append(errs, fmt.Errorf("outboxstore: ClaimRequest.Lease is %s; use at least 1ms", r.Lease))
	}
	return errors.Join(errs...)
}

// Claimed is a row under lease.
type Claimed struct {
	// Lease is what the row is completed, released, renewed and rejected by.
	Lease    Lease
	Envelope Envelope
	// Attempt counts the claims of the row, from 1; Rejections counts the refusals and panics.
	Attempt, Rejections int
	// Until is the end of the lease, by the database's clock.
	Until time.Time
	// Fault, unless nil, says why the row cannot be decoded: somebody else wrote it.
	Fault error
}

// Claim leases the oldest due rows in a short transaction of its own, in order of due time and
// number; rows of one ordering key in order of their numbers, and only when no earlier row of the
// key is unfinished elsewhere. Rows whose lease has expired are due again. No row means that none
// is due. Two claims never hold one row at a time. It is safe for concurrent use.
func (s *Store) Claim(ctx context.Context, request ClaimRequest) ([]Claimed, error) {
	if err := request.validate(); err != nil {
		return nil, err
	}
	view := s.scan.next()
	for range claimSegments {
		claimed, stopped, err := s.claim(ctx, request, view)
		if err != nil {
			s.scan.appended(0) // nothing is known: look at everything next time
			return nil, fmt.Errorf("outboxstore: claim: %w", err)
		}
		s.scan.seen(claimed, stopped)
		if len(claimed) > 0 || view.cursor == stopped {
			return claimed, nil // some, or none in all keys from the first to the last
		}
		view.cursor = stopped // on to the next keys, or from the last key to the first
	}
	return nil, nil
}

// claimSegments bounds how many parts of the keys one claim looks at that has found nothing.
const claimSegments = 5

func (s *Store) claim(ctx context.Context, request ClaimRequest, view view) (claimed []Claimed, stopped string, err error) {
	receipt := rand.Text()
	err = s.own(ctx, func(ctx context.Context) error {
		claimed, stopped = nil, ""
		args := []any{request.Owner, receipt, request.Lease.Microseconds(), request.Limit, request.PerKey,
			view.cursor, maxKeys, view.from, view.full}
		return s.rows(ctx, "claim", args, func(scan scanFunc) error {
			var row claimedRow
			if err := scan(row.dest()...); err != nil {
				return err
			}
			stopped = value(row.stopped)
			if row.seq != nil {
				claimed = append(claimed, row.claimed(receipt))
			}
			return nil
		})
	}, uow.At(sql.LevelReadCommitted))
	if err != nil {
		return nil, "", err
	}
	inOrder(claimed)
	return claimed, stopped, nil
}

// claimedRow has pointers, because the statement answers with a row of NULLs when nothing is due.
type claimedRow struct {
	stopped                      *string
	seq                          *int64
	topic, id, tenant            *string
	key, ordering, ctype, source *string
	payload                      []byte
	metadata                     *string
	occurred, due                *int64
	attempt, rejections          *int
	until                        *int64
}

func (r *claimedRow) dest() []any {
	return []any{&r.stopped, &r.seq, &r.topic, &r.id, &r.tenant, &r.key, &r.ordering, &r.payload, &r.metadata,
		&r.ctype, &r.source, &r.occurred, &r.due, &r.attempt, &r.rejections, &r.until}
}

func (r *claimedRow) claimed(receipt string) Claimed {
	plain := record{
		seq: *r.seq, topic: *r.topic, id: *r.id, tenant: *r.tenant, key: r.key, ordering: r.ordering, ctype: r.ctype,
		source: r.source, payload: r.payload, metadata: *r.metadata, occurred: r.occurred, due: *r.due,
	}
	c := Claimed{
		Lease: Lease{Seq: plain.seq, Receipt: receipt}, Attempt: *r.attempt, Rejections: *r.rejections,
		Until: time.UnixMicro(*r.until).UTC(),
	}
	c.Envelope, c.Fault = plain.envelope()
	return c
}

// inOrder sorts rows by due time and number: a database returns them as it likes. A row of a key
// counts as due no earlier than the rows before it, so that the key's order holds whatever the due
// times are.
func inOrder(rows []Claimed) {
	slices.SortFunc(rows, func(a, b Claimed) int { return cmp.Compare(a.Lease.Seq, b.Lease.Seq) })
	since := make(map[int64]time.Time, len(rows))
	latest := map[string]time.Time{}
	for _, c := range rows {
		due, key := c.Envelope.DueAt, c.Envelope.OrderingKey
		if key != "" {
			if latest[key].After(due) {
				due = latest[key]
			}
			latest[key] = due
		}
		since[c.Lease.Seq] = due
	}
	slices.SortStableFunc(rows, func(a, b Claimed) int { return since[a.Lease.Seq].Compare(since[b.Lease.Seq]) })
}
