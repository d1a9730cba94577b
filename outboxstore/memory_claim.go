package outboxstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"time"
)

// Claim is as [Store.Claim].
func (m *Memory) Claim(ctx context.Context, request ClaimRequest) ([]Claimed, error) {
	if err := request.validate(); err != nil {
		return nil, err
	}
	if err := cmp.Or(m.fault, ctx.Err()); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, receipt := time.Now(), rand.Text()
	due := m.due(now, request.PerKey)
	due = due[:min(request.Limit, len(due))]
	claimed := make([]Claimed, len(due))
	for i, row := range due {
		row.state, row.owner, row.receipt, row.until = Leased, request.Owner, receipt, now.Add(request.Lease)
		row.attempt++
		claimed[i] = Claimed{
			Lease: Lease{Seq: row.seq, Receipt: receipt}, Envelope: row.envelope.copy(),
			Attempt: row.attempt, Rejections: row.rejections, Until: row.until,
		}
	}
	return claimed, nil
}

// due gives the rows that may be leased, in order. The caller holds the lock.
func (m *Memory) due(now time.Time, perKey int) []*memoryRow {
	var open []*memoryRow
	for _, row := range m.rows {
		if row.staged == nil && (row.state == Pending || row.state == Leased) {
			open = append(open, row)
		}
	}
	slices.SortFunc(open, func(a, b *memoryRow) int { return cmp.Compare(a.seq, b.seq) })

	type lane struct {
		rows   int
		closed bool      // a row of the key is not free: the ones behind it wait
		since  time.Time // the latest due time so far
	}
	lanes := map[string]*lane{}
	since := map[int64]time.Time{}
	var due []*memoryRow
	for _, row := range open {
		free := row.state == Pending && !row.due.After(now) || row.state == Leased && row.until.Before(now)
		key := row.envelope.OrderingKey
		if key == "" {
			if free {
				due, since[row.seq] = append(due, row), row.due
			}
			continue
		}
		l := lanes[key]
		if l == nil {
			l = &lane{}
			lanes[key] = l
		}
		l.closed = l.closed || !free || l.rows == perKey
		if l.closed {
			continue
		}
		l.rows++
		if row.due.After(l.since) {
			l.since = row.due
		}
		due, since[row.seq] = append(due, row), l.since
	}
	slices.SortStableFunc(due, func(a, b *memoryRow) int { return since[a.seq].Compare(since[b.seq]) })
	return due
}
