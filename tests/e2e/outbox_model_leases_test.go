package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
)

// some draws leases, current and stale ones, and says which are current.
func (m *model) some(t *rapid.T) (leases []outboxstore.Lease, current []*modelRow) {
	if len(m.leases) == 0 {
		t.Skip("nothing was claimed")
	}
	recent := m.leases[max(0, len(m.leases)-15):]
	leases = rapid.SliceOfNDistinct(rapid.SampledFrom(recent), 1, min(5, len(recent)), func(l outboxstore.Lease) int64 { return l.Seq }).Draw(t, "leases")
	for _, l := range leases {
		for _, row := range m.rows {
			if row.seq == l.Seq && row.state == outboxstore.Leased && row.receipt == l.Receipt {
				current = append(current, row)
			}
		}
	}
	return leases, current
}

// requireChanged checks what a write-back answered.
func requireChanged(t *rapid.T, leases []outboxstore.Lease, current []*modelRow, n int, err error) {
	require.Equal(t, len(current), n)
	if n == len(leases) {
		require.NoError(t, err)
		return
	}
	var lost *outboxstore.LeaseLostError
	require.ErrorAs(t, err, &lost)
	require.Len(t, lost.Lost, len(leases)-n)
}

func (m *model) complete(t *rapid.T) {
	leases, current := m.some(t)
	keep := rapid.Bool().Draw(t, "keep")
	n, err := m.store.Complete(context.Background(), leases, keep)
	requireChanged(t, leases, current, n, err)
	for _, row := range current {
		row.state = outboxstore.Forwarded
		if !keep {
			delete(m.rows, row.id)
		}
	}
}

func (m *model) release(t *rapid.T) {
	leases, current := m.some(t)
	later := rapid.Bool().Draw(t, "delay")
	var releases []outboxstore.Release
	for _, l := range leases {
		r := outboxstore.Release{Lease: l}
		if later {
			r.Delay = time.Hour
		}
		releases = append(releases, r)
	}
	n, err := m.store.Release(context.Background(), releases)
	requireChanged(t, leases, current, n, err)
	for _, row := range current {
		row.state, row.due = outboxstore.Pending, !later
	}
}

func (m *model) reject(t *rapid.T) {
	leases, current := m.some(t)
	allowed, hold := rapid.IntRange(1, 4).Draw(t, "allowed"), rapid.IntRange(0, 3).Draw(t, "hold") == 0
	var rejections []outboxstore.Rejection
	for _, l := range leases {
		rejections = append(rejections, outboxstore.Rejection{Lease: l, Error: fmt.Sprint("no to ", l.Seq), Allowed: allowed, Hold: hold, Delay: time.Hour})
	}
	n, err := m.store.Reject(context.Background(), rejections)
	requireChanged(t, leases, current, n, err)
	for _, row := range current {
		row.rejections++
		row.lastError = fmt.Sprint("no to ", row.seq)
		switch {
		case row.rejections >= allowed:
			row.state = outboxstore.Dead
		case !hold:
			row.state, row.due = outboxstore.Pending, false
		}
	}
}

func (m *model) renew(t *rapid.T) {
	leases, current := m.some(t)
	n, err := m.store.Renew(context.Background(), leases, time.Hour)
	requireChanged(t, leases, current, n, err)
	for _, row := range current {
		row.expired = false
	}
}

// expire is the crash of all forwarders, and their leases' end.
func (m *model) expire(t *rapid.T) {
	m.sql(t, "UPDATE %s SET lease_until = %p WHERE state = 'leased'")
	for _, row := range m.rows {
		row.expired = row.state == outboxstore.Leased
	}
}

// pass lets time go by until everything is due.
func (m *model) pass(t *rapid.T) {
	m.sql(t, "UPDATE %s SET due_at = %p WHERE state = 'pending'")
	for _, row := range m.rows {
		row.due = row.due || row.state == outboxstore.Pending
	}
}

// pick draws numbers of rows in any state, and says which of them are dead.
func (m *model) pick(t *rapid.T) (seqs []int64, dead []*modelRow) {
	if len(m.rows) == 0 {
		t.Skip("there is nothing")
	}
	rows := rapid.SliceOfDistinct(rapid.SampledFrom(m.ordered()), func(r *modelRow) int64 { return r.seq }).Draw(t, "rows")
	for _, row := range rows {
		seqs = append(seqs, row.seq)
		if row.state == outboxstore.Dead {
			dead = append(dead, row)
		}
	}
	return seqs, dead
}

func (m *model) requeue(t *rapid.T) {
	seqs, dead := m.pick(t)
	changed, err := m.store.Requeue(context.Background(), seqs...)
	require.NoError(t, err)
	require.Equal(t, outboxstore.Changed{Asked: len(seqs), Changed: len(dead)}, changed)
	m.requeued(t, dead)
}

// requeued checks that the rows went behind all others, in their old order.
func (m *model) requeued(t *rapid.T, dead []*modelRow) {
	slices.SortFunc(dead, func(a, b *modelRow) int { return cmp.Compare(a.seq, b.seq) })
	last := m.newest()
	rows, err := m.store.List(context.Background(), outboxstore.Filter{After: last, Limit: outboxstore.MaxPage})
	require.NoError(t, err)
	require.Len(t, rows, len(dead))
	for i, row := range dead {
		require.Equal(t, row.id, rows[i].Envelope.Message.UUID)
		row.seq, row.state, row.due, row.attempt, row.rejections = rows[i].Seq, outboxstore.Pending, true, 0, 0
	}
}

func (m *model) discard(t *rapid.T) {
	seqs, dead := m.pick(t)
	changed, err := m.store.Discard(context.Background(), seqs...)
	require.NoError(t, err)
	require.Equal(t, outboxstore.Changed{Asked: len(seqs), Changed: len(dead)}, changed)
	for _, row := range dead {
		delete(m.rows, row.id)
	}
}

// purge deletes rows whose retention is over, and no others.
func (m *model) purge(t *rapid.T) {
	state := rapid.SampledFrom([]outboxstore.State{outboxstore.Forwarded, outboxstore.Dead}).Draw(t, "state")
	policy := outboxstore.PurgePolicy{Forwarded: time.Hour, Dead: time.Hour, Chunk: 100}
	m.sql(t, "UPDATE %s SET finished_at = %p WHERE state = $1 AND seq % 2 = 0", string(state))
	n, err := m.store.Purge(context.Background(), policy)
	require.NoError(t, err)
	for id, row := range m.rows {
		if row.state == state && row.seq%2 == 0 {
			delete(m.rows, id)
			n--
		}
	}
	require.Zero(t, n)
}

// exit leads every row out: what is delayed, held, waiting or dead is published in the end.
func (m *model) exit(t *rapid.T) {
	for range 3 * 61 { // more claims than rows, by one each
		m.expire(t)
		m.pass(t)
		if dead := slices.DeleteFunc(m.ordered(), func(r *modelRow) bool { return r.state != outboxstore.Dead }); len(dead) > 0 {
			changed, err := m.store.RequeueAll(context.Background(), outboxstore.Filter{Limit: outboxstore.MaxPage})
			require.NoError(t, err)
			require.Equal(t, len(dead), changed.Changed)
			m.requeued(t, dead)
		}
		leases := m.take(t, outboxstore.New(m.work), 50, 50, true)
		if len(leases) == 0 {
			break
		}
		n, err := m.store.Complete(context.Background(), leases, true)
		require.NoError(t, err)
		require.Len(t, leases, n)
		for _, row := range m.rows {
			for _, l := range leases {
				if row.seq == l.Seq {
					row.state = outboxstore.Forwarded
				}
			}
		}
	}
	m.compare(t)
	for _, row := range m.rows {
		require.Equal(t, outboxstore.Forwarded, row.state, "%s has no way out", row.id)
	}
}
