package outboxstore

import (
	"context"
	"fmt"
	"time"
)

// Complete is as [Store.Complete].
func (m *Memory) Complete(_ context.Context, leases []Lease, keep bool) (int, error) {
	return m.change("complete", plain(leases), func(row *memoryRow, _ wireLease, now time.Time) {
		if !keep {
			m.remove(row)
		}
		row.finish(Forwarded, now)
	})
}

// Release is as [Store.Release].
func (m *Memory) Release(_ context.Context, releases []Release) (int, error) {
	list := make([]wireLease, len(releases))
	for i, r := range releases {
		list[i] = wireLease{Seq: r.Lease.Seq, Receipt: r.Lease.Receipt, Delay: r.Delay.Microseconds()}
	}
	return m.change("release", list, func(row *memoryRow, l wireLease, now time.Time) { row.free(l, now) })
}

// Renew is as [Store.Renew].
func (m *Memory) Renew(_ context.Context, leases []Lease, lease time.Duration) (int, error) {
	if lease < time.Millisecond {
		return 0, fmt.Errorf("outboxstore: renew: the lease is %s; use at least 1ms", lease)
	}
	return m.change("renew", plain(leases), func(row *memoryRow, _ wireLease, now time.Time) { row.until = now.Add(lease) })
}

// Reject is as [Store.Reject].
func (m *Memory) Reject(_ context.Context, rejections []Rejection) (int, error) {
	return m.change("reject", rejected(rejections), func(row *memoryRow, l wireLease, now time.Time) {
		row.rejections++
		row.lastError = l.Error
		switch {
		case row.rejections >= l.Allowed:
			row.finish(Dead, now)
		case !l.Held:
			row.free(l, now)
		}
	})
}

// Purge is as [Store.Purge].
func (m *Memory) Purge(_ context.Context, policy PurgePolicy) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var total int64
	for _, kind := range policy.kinds() {
		deleted := 0
		for _, row := range m.rows {
			if row.state == kind.state && kind.age > 0 && time.Since(row.finished) > kind.age && deleted < policy.chunk() {
				m.remove(row)
				deleted++
			}
		}
		total += int64(deleted)
	}
	return total, m.fault
}

// Stats is as [Store.Stats].
func (m *Memory) Stats(context.Context) (Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var stats Stats
	for _, row := range m.rows {
		switch {
		case row.staged != nil:
		case row.state == Pending:
			stats.Pending++
			stats.OldestAge = max(stats.OldestAge, time.Since(row.due))
		case row.state == Leased:
			stats.Leased++
		case row.state == Dead:
			stats.Dead++
		}
	}
	return stats, m.fault
}

// change applies fn to the rows whose receipt is the current one.
func (m *Memory) change(op string, list []wireLease, fn func(row *memoryRow, l wireLease, now time.Time)) (int, error) {
	if len(list) == 0 || m.fault != nil {
		return 0, m.fault
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	changed := map[int64]bool{}
	for _, l := range list {
		row := m.rows[l.Seq]
		if row != nil && row.state == Leased && row.receipt == l.Receipt {
			fn(row, l, now)
			changed[l.Seq] = true
		}
	}
	return len(changed), lost(op, list, changed)
}

// free makes the row pending, after the lease's delay.
func (r *memoryRow) free(l wireLease, now time.Time) {
	r.state, r.owner, r.receipt, r.until = Pending, "", "", time.Time{}
	if at := now.Add(time.Duration(l.Delay) * time.Microsecond); l.Delay > 0 && at.After(r.due) {
		r.due, r.envelope.DueAt = at, at
	}
}

func (r *memoryRow) finish(state State, now time.Time) {
	r.state, r.owner, r.receipt, r.until, r.finished = state, "", "", time.Time{}, now
}
