package outboxstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// List is as [Store.List].
func (m *Memory) List(ctx context.Context, filter Filter) ([]Row, error) {
	rows, err := m.list(ctx, filter)
	for i := range rows {
		rows[i].Envelope.Message.Payload = nil
	}
	return rows, err
}

// Read is as [Store.Read].
func (m *Memory) Read(ctx context.Context, seq int64) (Row, error) {
	rows, err := m.list(ctx, Filter{After: seq - 1, Limit: 1})
	switch {
	case err != nil:
		return Row{}, err
	case len(rows) == 0 || rows[0].Seq != seq:
		return Row{}, ErrNoRow
	}
	return rows[0], nil
}

func (m *Memory) list(ctx context.Context, f Filter) ([]Row, error) {
	if err := f.prepare(); err != nil {
		return nil, fmt.Errorf("outboxstore: list: %w", err)
	}
	if err := cmp.Or(m.fault, ctx.Err()); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var found []*memoryRow
	for _, row := range m.rows {
		if row.staged == nil && row.seq > f.After && row.fits(f, now) {
			found = append(found, row)
		}
	}
	slices.SortFunc(found, func(a, b *memoryRow) int { return cmp.Compare(a.seq, b.seq) })
	found = found[:min(f.Limit, len(found))]
	rows := make([]Row, len(found))
	for i, row := range found {
		rows[i] = Row{
			Seq: row.seq, State: row.state, Envelope: row.envelope.copy(), Attempt: row.attempt, Rejections: row.rejections,
			LastError: row.lastError, Owner: row.owner, LeaseUntil: row.until.UTC(), FinishedAt: row.finished.UTC(),
		}
	}
	return rows, nil
}

func (r *memoryRow) fits(f Filter, now time.Time) bool {
	for _, pair := range [][2]string{
		{string(f.State), string(r.state)}, {f.Topic, r.envelope.Topic}, {f.Tenant, r.envelope.Tenant}, {f.OrderingKey, r.envelope.OrderingKey},
	} {
		if pair[0] != "" && pair[0] != pair[1] {
			return false
		}
	}
	since := r.finished
	if since.IsZero() {
		since = r.due
	}
	return strings.Contains(r.lastError, f.Error) && (f.Age == 0 || !since.After(now.Add(-f.Age)))
}

// Requeue is as [Store.Requeue].
func (m *Memory) Requeue(ctx context.Context, seqs ...int64) (Changed, error) {
	changed, err := m.operate(ctx, seqs, func(row *memoryRow) {
		delete(m.rows, row.seq)
		m.seq++
		row.seq, row.state, row.due, row.finished = m.seq, Pending, time.Now(), time.Time{}
		row.envelope.DueAt, row.attempt, row.rejections = row.due, 0, 0
		m.rows[row.seq] = row
	})
	if changed.Changed > 0 {
		m.wake.signal()
	}
	return changed, err
}

// RequeueAll is as [Store.RequeueAll].
func (m *Memory) RequeueAll(ctx context.Context, filter Filter) (Changed, error) {
	return onDead(ctx, filter, m.List, m.Requeue)
}

// Discard is as [Store.Discard].
func (m *Memory) Discard(ctx context.Context, seqs ...int64) (Changed, error) {
	return m.operate(ctx, seqs, m.remove)
}

// DiscardAll is as [Store.DiscardAll].
func (m *Memory) DiscardAll(ctx context.Context, filter Filter) (Changed, error) {
	return onDead(ctx, filter, m.List, m.Discard)
}

// operate applies fn to those of the rows that are dead.
func (m *Memory) operate(ctx context.Context, seqs []int64, fn func(row *memoryRow)) (Changed, error) {
	seqs = distinct(seqs)
	changed := Changed{Asked: len(seqs)}
	if err := cmp.Or(m.fault, ctx.Err()); err != nil {
		return changed, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seq := range seqs {
		if row := m.rows[seq]; row != nil && row.state == Dead {
			fn(row)
			changed.Changed++
		}
	}
	return changed, nil
}
