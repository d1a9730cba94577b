package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
)

func claimTakesTheOldestDueFirst(t *testing.T, b *outboxBench) {
	hourAgo := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	old, older, later := envelope("old"), envelope("older"), envelope("later")
	old.OccurredAt, older.OccurredAt, later.DueAt = hourAgo, hourAgo.Add(-time.Hour), time.Now().Add(time.Hour)
	future := envelope("from a clock ahead")
	future.OccurredAt = time.Now().Add(time.Hour)
	b.add(t, envelope("new"), later, old, older, future)
	first := b.claim(t, 2)
	assert.Equal(t, []string{"older", "old"}, ids(first))
	assert.Equal(t, []string{"new", "from a clock ahead"}, ids(b.claim(t, 10)))
	assert.Empty(t, b.claim(t, 10))
	assert.Equal(t, 1, first[0].Attempt)
	assert.Equal(t, hourAgo.Add(-time.Hour).UTC(), first[0].Envelope.OccurredAt.UTC())
	assert.WithinDuration(t, time.Now().Add(time.Minute), first[0].Until, 10*time.Second)
}

func delayedRowComesWhenItIsDue(t *testing.T, b *outboxBench) {
	e, k := envelope("delayed"), keyed("delayed with key", "k")
	e.DueAt = time.Now().Add(200 * time.Millisecond)
	k.DueAt = e.DueAt
	b.add(t, e, k, keyed("behind", "k"))
	var got []string
	within(t, patience, func() bool {
		claimed := b.claim(t, 10)
		if time.Now().Before(e.DueAt) {
			assert.Empty(t, claimed)
		}
		got = append(got, ids(claimed)...)
		return len(got) == 3
	}, "the rows come")
}

func expiredLeaseIsTakenOverWithAFreshReceipt(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"), keyed("b", "k"), keyed("c", "k"))
	short := request(10)
	short.Lease = 50 * time.Millisecond
	first, err := b.Claim(t.Context(), short)
	require.NoError(t, err)
	require.Len(t, first, 3)
	var second []outboxstore.Claimed
	within(t, patience, func() bool {
		second = append(second, b.claim(t, 10)...)
		return len(second) == 3
	}, "the rows are claimed again")
	assert.ElementsMatch(t, []string{"a", "b", "c"}, ids(second))
	assert.Equal(t, 2, second[0].Attempt)
	assert.NotEqual(t, first[0].Lease.Receipt, second[0].Lease.Receipt)

	n, err := b.Complete(t.Context(), leases(first), true)
	require.ErrorIs(t, err, outboxstore.ErrLeaseLost)
	assert.Zero(t, n, "the stale holder changes nothing")
}

func manyClaimersNeverShareARow(t *testing.T, b *outboxBench) {
	n, claimers := 600, 6
	if b.SingleWriter {
		n, claimers = 150, 2 // it has one writer at a time, and does not hand it on in turn
	}
	var batch []outboxstore.Envelope
	for i := range n {
		e := envelope(fmt.Sprint(i))
		if i%3 == 0 {
			e.OrderingKey = fmt.Sprint("key ", i%20)
		}
		batch = append(batch, e)
	}
	b.add(t, batch...)
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for c := range claimers {
		store := []OutboxStore{b.OutboxStore, b.second}[c%2]
		wg.Go(func() {
			for {
				mu.Lock()
				done := len(seen) == n
				mu.Unlock()
				if done || t.Failed() {
					return
				}
				claimed, err := store.Claim(t.Context(), request(10))
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				for _, c := range claimed {
					seen[c.Envelope.Message.UUID]++
				}
				mu.Unlock()
				_, err = store.Complete(t.Context(), leases(claimed), true)
				assert.NoError(t, err)
				if len(claimed) == 0 {
					time.Sleep(5 * time.Millisecond) // what is left is out with another claimer
				}
			}
		})
	}
	wg.Wait()
	for id, times := range seen {
		require.Equal(t, 1, times, id)
	}
}

func onlyTheOldestUnfinishedRowOpensItsKey(t *testing.T, b *outboxBench) {
	b.add(t, keyed("a1", "a"), keyed("b1", "b"), keyed("a2", "a"), keyed("a3", "a"), keyed("b2", "b"), envelope("free"))
	perKey := request(10)
	perKey.PerKey = 2
	first, err := b.Claim(t.Context(), perKey)
	require.NoError(t, err)
	require.Equal(t, []string{"a1", "b1", "a2", "b2", "free"}, ids(first))
	require.Empty(t, b.claim(t, 10), "a3 waits for a1 and a2")

	// a2 comes back while a1 is still out.
	_, err = b.Release(t.Context(), []outboxstore.Release{{Lease: first[2].Lease}})
	require.NoError(t, err)
	require.Empty(t, b.claim(t, 10))

	// a1 is refused and waits: the key is parked.
	_, err = b.Reject(t.Context(), []outboxstore.Rejection{{Lease: first[0].Lease, Delay: time.Hour, Allowed: 5}})
	require.NoError(t, err)
	require.Empty(t, b.claim(t, 10))

	_, err = b.Complete(t.Context(), []outboxstore.Lease{first[1].Lease, first[3].Lease, first[4].Lease}, true)
	require.NoError(t, err)
	require.Empty(t, b.claim(t, 10))
}

func aGapEndsALane(t *testing.T, b *outboxBench) {
	b.add(t, keyed("1", "k"), keyed("2", "k"), keyed("3", "k"))
	out := b.claim(t, 2)
	require.Equal(t, []string{"1", "2"}, ids(out))
	_, err := b.Release(t.Context(), []outboxstore.Release{{Lease: out[0].Lease}})
	require.NoError(t, err)
	assert.Equal(t, []string{"1"}, ids(b.claim(t, 10)), "2 is still out, so 3 waits")
}

func deadRowLetsItsKeyGoOn(t *testing.T, b *outboxBench) {
	b.add(t, keyed("1", "k"), keyed("2", "k"))
	out := b.claim(t, 1)
	_, err := b.Reject(t.Context(), []outboxstore.Rejection{{Lease: out[0].Lease, Error: "no", Allowed: 1}})
	require.NoError(t, err)
	assert.Equal(t, []string{"2"}, ids(b.claim(t, 10)))
}

func batchHoldsManyKeysInTurn(t *testing.T, b *outboxBench) {
	keys := 2500 // more than one claim passes over
	if b.SingleWriter {
		keys = 200 // it passes over all
	}
	var batch []outboxstore.Envelope
	for i := range keys {
		e := keyed(fmt.Sprintf("waits %d", i), fmt.Sprintf("k%05d", i))
		e.DueAt = time.Now().Add(time.Hour)
		batch = append(batch, e)
	}
	b.add(t, append(batch, keyed("due", "z"))...)
	assert.Equal(t, []string{"due"}, ids(b.claim(t, 10)), "a key behind many that wait is found at once")
	b.add(t, keyed("first", "a"))
	assert.Equal(t, []string{"first"}, ids(b.claim(t, 10)))
}
