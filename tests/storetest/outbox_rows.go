package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
)

func rowIDs(rows []outboxstore.Row) []string {
	out := []string{}
	for _, row := range rows {
		out = append(out, row.Envelope.Message.UUID)
	}
	return out
}

func (b *outboxBench) list(t testing.TB, filter outboxstore.Filter) []outboxstore.Row {
	t.Helper()
	rows, err := b.List(t.Context(), filter)
	require.NoError(t, err)
	return rows
}

func listByEveryField(t *testing.T, b *outboxBench) {
	other := keyed("other", "k")
	other.Topic, other.Tenant, other.IdempotencyKey = "audit", "acme", "ik"
	b.add(t, envelope("published"), keyed("published in order", "k"))
	_, err := b.Complete(t.Context(), leases(b.claim(t, 2)), true)
	require.NoError(t, err)
	b.add(t, envelope("refused"), keyed("refused in order", "l"))
	b.kill(t, "refused", "refused in order")
	b.add(t, envelope("held"), keyed("held in order", "m"))
	b.claim(t, 2)
	later := envelope("later")
	later.DueAt = time.Now().Add(time.Hour)
	b.add(t, other, later)

	for _, c := range []struct {
		filter outboxstore.Filter
		want   []string
	}{
		{outboxstore.Filter{}, []string{"published", "published in order", "refused", "refused in order", "held", "held in order", "other", "later"}},
		{outboxstore.Filter{State: outboxstore.Pending}, []string{"other", "later"}},
		{outboxstore.Filter{State: outboxstore.Leased}, []string{"held", "held in order"}},
		{outboxstore.Filter{State: outboxstore.Forwarded}, []string{"published", "published in order"}},
		{outboxstore.Filter{State: outboxstore.Dead}, []string{"refused", "refused in order"}},
		{outboxstore.Filter{State: outboxstore.Dead, Limit: 1}, []string{"refused"}},
		{outboxstore.Filter{Topic: "audit"}, []string{"other"}},
		{outboxstore.Filter{Tenant: "acme", State: outboxstore.Pending}, []string{"other"}},
		{outboxstore.Filter{OrderingKey: "k"}, []string{"published in order", "other"}},
		{outboxstore.Filter{Error: "no to refused in"}, []string{"refused in order"}},
		{outboxstore.Filter{Error: "%"}, []string{}},
		{outboxstore.Filter{Age: time.Hour}, []string{}},
	} {
		assert.Equal(t, c.want, rowIDs(b.list(t, c.filter)), "%+v", c.filter)
	}
	within(t, patience, func() bool { return len(b.list(t, outboxstore.Filter{Age: time.Millisecond})) == 7 }, "all but the one that is not due")

	// Page by page.
	var paged []string
	for filter := (outboxstore.Filter{Limit: 3}); ; {
		rows := b.list(t, filter)
		paged = append(paged, rowIDs(rows)...)
		if len(rows) < filter.Limit {
			break
		}
		filter.After = rows[len(rows)-1].Seq
	}
	assert.Equal(t, rowIDs(b.list(t, outboxstore.Filter{})), paged)

	dead := b.list(t, outboxstore.Filter{State: outboxstore.Dead})[1]
	assert.Equal(t, []any{outboxstore.Dead, 1, 1, "no to refused in order", "l", ""}, []any{dead.State, dead.Attempt, dead.Rejections, dead.LastError, dead.Envelope.OrderingKey, dead.Owner})
	assert.WithinDuration(t, time.Now(), dead.FinishedAt, time.Minute)
	assert.Empty(t, dead.Envelope.Message.Payload, "a list has no payloads")
	held := b.list(t, outboxstore.Filter{State: outboxstore.Leased})[0]
	assert.Equal(t, "test", held.Owner)
	assert.WithinDuration(t, time.Now().Add(time.Minute), held.LeaseUntil, 30*time.Second)
	full, err := b.Read(t.Context(), dead.Seq)
	require.NoError(t, err)
	assert.Equal(t, "payload of refused in order", string(full.Envelope.Message.Payload))
	_, err = b.Read(t.Context(), 1<<40)
	require.ErrorIs(t, err, outboxstore.ErrNoRow)
	_, err = b.Read(t.Context(), 0)
	require.ErrorIs(t, err, outboxstore.ErrNoRow)

	_, err = b.List(t.Context(), outboxstore.Filter{State: "lost", Topic: "\x00", Tenant: "\xff", Age: -1, Limit: outboxstore.MaxPage + 1})
	for _, field := range []string{"State", "Topic", "Tenant", "Age", "Limit"} {
		assert.ErrorContains(t, err, "Filter."+field)
	}
}

func requeueAndDiscardTouchDeadRowsOnly(t *testing.T, b *outboxBench) {
	b.add(t, envelope("published"))
	_, err := b.Complete(t.Context(), leases(b.claim(t, 1)), true)
	require.NoError(t, err)
	b.add(t, envelope("dead 1"), envelope("dead 2"), envelope("dead 3"))
	b.kill(t, "dead 1", "dead 2", "dead 3")
	b.add(t, envelope("held"))
	held := b.claim(t, 1)
	b.add(t, envelope("waits"))
	seqs := map[string]int64{}
	for _, row := range b.list(t, outboxstore.Filter{}) {
		seqs[row.Envelope.Message.UUID] = row.Seq
	}
	all := []int64{seqs["published"], seqs["dead 1"], seqs["held"], seqs["waits"], seqs["dead 1"], 1 << 40}
	changed, err := b.Requeue(t.Context(), all...)
	require.NoError(t, err)
	assert.Equal(t, outboxstore.Changed{Asked: 5, Changed: 1}, changed)
	assert.Equal(t, outboxstore.Stats{Pending: 2, Leased: 1, Dead: 2}, b.stats(t))
	row := b.list(t, outboxstore.Filter{State: outboxstore.Pending, Error: "dead 1"})
	require.Len(t, row, 1)
	assert.Equal(t, []any{0, 0, "no to dead 1", time.Time{}}, []any{row[0].Attempt, row[0].Rejections, row[0].LastError, row[0].FinishedAt})
	_, err = b.Read(t.Context(), seqs["dead 1"])
	require.ErrorIs(t, err, outboxstore.ErrNoRow, "it has a new number")
	n, err := b.Complete(t.Context(), leases(held), true)
	require.NoError(t, err)
	assert.Equal(t, 1, n, "a lease is left alone")

	changed, err = b.Discard(t.Context(), append(all, seqs["dead 2"])...)
	require.NoError(t, err)
	assert.Equal(t, outboxstore.Changed{Asked: 6, Changed: 1}, changed)
	assert.Equal(t, outboxstore.Enqueued, b.add(t, envelope("dead 2"))[0].Outcome, "it is forgotten")
	assert.Equal(t, outboxstore.AlreadyEnqueued, b.add(t, envelope("dead 1"))[0].Outcome)

	changed, err = b.DiscardAll(t.Context(), outboxstore.Filter{Error: "no to dead 3", Limit: 1})
	require.NoError(t, err)
	assert.Equal(t, outboxstore.Changed{Asked: 1, Changed: 1}, changed)
	for _, state := range []outboxstore.State{outboxstore.Pending, outboxstore.Forwarded, "none"} {
		_, err = b.RequeueAll(t.Context(), outboxstore.Filter{State: state})
		assert.ErrorContains(t, err, "only dead rows", state)
	}
	changed, err = b.Requeue(t.Context())
	require.NoError(t, err)
	assert.Zero(t, changed)
}

func requeuedRowsGoLast(t *testing.T, b *outboxBench) {
	b.add(t, keyed("1", "k"), keyed("2", "k"), keyed("3", "k"), envelope("free"))
	b.kill(t, "1")
	b.kill(t, "2")
	changed, err := b.RequeueAll(t.Context(), outboxstore.Filter{OrderingKey: "k"})
	require.NoError(t, err)
	assert.Equal(t, outboxstore.Changed{Asked: 2, Changed: 2}, changed)
	b.add(t, keyed("4", "k"))
	var order []string
	within(t, patience, func() bool {
		for _, c := range b.claim(t, 10) {
			if c.Envelope.OrderingKey != "" {
				order = append(order, c.Envelope.Message.UUID)
			}
			if c.Envelope.Message.UUID < "3" {
				assert.Equal(t, 1, c.Attempt, "the first claim since it was requeued")
			}
		}
		return len(order) == 4
	}, "all are claimed")
	assert.Equal(t, []string{"3", "1", "2", "4"}, order, "behind what was there when they were requeued, before what came later")
}

// What the operator does about a fault of the broker: requeue, and everything is published.
func requeuedRowIsPublished(t *testing.T, b *outboxBench) {
	const n = 30
	var batch []outboxstore.Envelope
	for i := range n {
		batch = append(batch, keyed(fmt.Sprint(i), fmt.Sprint(i%3)))
	}
	b.add(t, batch...)
	refusing := &broker{fail: failing(outboxstore.Rejected(errBroker), "0", "1", "17")}
	f := forwarder(t, b, refusing, outboxstore.ForwarderConfig{MaxRejections: 1})
	within(t, patience, func() bool { _, err := f.RunOnce(t.Context()); return err == nil && refusing.count() == n-3 }, "the others are published")
	dead := b.list(t, outboxstore.Filter{State: outboxstore.Dead})
	assert.Equal(t, []string{"0", "1", "17"}, rowIDs(dead))
	for _, row := range dead {
		assert.Equal(t, errBroker.Error(), row.LastError)
	}
	select {
	case <-b.Wake():
	default:
	}
	p := &broker{}
	start(t, forwarder(t, b, p, outboxstore.ForwarderConfig{Poll: time.Hour}))
	changed, err := b.RequeueAll(t.Context(), outboxstore.Filter{Topic: "orders"})
	require.NoError(t, err)
	assert.Equal(t, outboxstore.Changed{Asked: 3, Changed: 3}, changed)
	within(t, patience, func() bool { return p.count() == 3 && b.stats(t) == outboxstore.Stats{} }, "they are published, and no poll is waited for")
}
