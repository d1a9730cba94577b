package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
)

func releaseGivesBackAtOnceOrLater(t *testing.T, b *outboxBench) {
	b.add(t, envelope("first"), envelope("second"), envelope("third"))
	claimed := b.claim(t, 10)
	released := time.Now()
	n, err := b.Release(t.Context(), []outboxstore.Release{{Lease: claimed[0].Lease}, {Lease: claimed[1].Lease, Delay: 300 * time.Millisecond}})
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	again := b.claim(t, 10)
	require.Equal(t, []string{"first"}, ids(again))
	assert.Equal(t, 2, again[0].Attempt)
	assert.Zero(t, again[0].Rejections)
	assert.NotEqual(t, claimed[0].Lease.Receipt, again[0].Lease.Receipt)
	var delayed []outboxstore.Claimed
	within(t, patience, func() bool { delayed = b.claim(t, 10); return len(delayed) == 1 }, "second comes after its delay")
	assert.GreaterOrEqual(t, time.Since(released), 290*time.Millisecond)
	assert.NotEqual(t, claimed[1].Lease.Receipt, delayed[0].Lease.Receipt)
	_, err = b.Complete(t.Context(), []outboxstore.Lease{claimed[1].Lease}, true)
	require.ErrorIs(t, err, outboxstore.ErrLeaseLost, "the receipt of before the delay is worth nothing")
}

func renewKeepsOthersAway(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"))
	short := request(1)
	short.Lease = 100 * time.Millisecond
	claimed, err := b.Claim(t.Context(), short)
	require.NoError(t, err)
	n, err := b.Renew(t.Context(), leases(claimed), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	time.Sleep(150 * time.Millisecond) // past the first lease: nothing signals that it has not expired
	require.Empty(t, b.claim(t, 1))
	_, err = b.Complete(t.Context(), leases(claimed), true)
	require.NoError(t, err)
	_, err = b.Renew(t.Context(), leases(claimed), time.Minute)
	require.ErrorIs(t, err, outboxstore.ErrLeaseLost)
}

func writeBackOutlivesTheCallersContext(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"), envelope("b"), envelope("c"))
	claimed := b.claim(t, 10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Complete(ctx, leases(claimed)[:1], true)
	require.NoError(t, err)
	_, err = b.Release(ctx, []outboxstore.Release{{Lease: claimed[1].Lease}})
	require.NoError(t, err)
	_, err = b.Reject(ctx, []outboxstore.Rejection{{Lease: claimed[2].Lease, Allowed: 2}})
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "c"}, ids(b.claim(t, 10)))
	_, err = b.Claim(ctx, request(1))
	require.ErrorIs(t, err, context.Canceled)
}

func rejectionsMakeARowDeadAndClaimsDoNot(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"))
	for range 10 {
		_, err := b.Release(t.Context(), []outboxstore.Release{{Lease: b.claim(t, 1)[0].Lease}})
		require.NoError(t, err)
	}
	for i := range 3 {
		claimed := b.claim(t, 1)
		require.Len(t, claimed, 1)
		assert.Equal(t, i, claimed[0].Rejections)
		_, err := b.Reject(t.Context(), []outboxstore.Rejection{{Lease: claimed[0].Lease, Error: "\x00\xff" + strings.Repeat("e", 5000), Allowed: 3}})
		require.NoError(t, err)
	}
	require.Empty(t, b.claim(t, 1))
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, outboxstore.Stats{Dead: 1}, stats)
	assert.Equal(t, outboxstore.AlreadyEnqueued, b.add(t, envelope("a"))[0].Outcome)
	if b.SQL {
		assert.Equal(t, 1, b.countRows(t, "state = 'dead' AND rejections = 3 AND attempt = 13 AND length(last_error) BETWEEN 2000 AND 2052"))
	}
}

func heldRejectionKeepsTheLease(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"))
	claimed := b.claim(t, 1)
	_, err := b.Reject(t.Context(), []outboxstore.Rejection{{Lease: claimed[0].Lease, Error: "panic", Allowed: 2, Hold: true}})
	require.NoError(t, err)
	require.Empty(t, b.claim(t, 1))
	_, err = b.Reject(t.Context(), []outboxstore.Rejection{{Lease: claimed[0].Lease, Error: "panic", Allowed: 2, Hold: true}})
	require.NoError(t, err)
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(1), stats.Dead)
}

func purgeTakesOnlyFinishedRowsPastTheirRetention(t *testing.T, b *outboxBench) {
	b.add(t, envelope("published 1"), envelope("published 2"), envelope("dead"))
	out := b.claim(t, 3)
	_, err := b.Complete(t.Context(), leases(out)[:2], true)
	require.NoError(t, err)
	_, err = b.Reject(t.Context(), []outboxstore.Rejection{{Lease: out[2].Lease, Allowed: 1}})
	require.NoError(t, err)
	b.add(t, envelope("leased"))
	b.claim(t, 1)
	b.add(t, envelope("pending"))

	n, err := b.Purge(t.Context(), outboxstore.PurgePolicy{Forwarded: time.Hour, Dead: time.Hour})
	require.NoError(t, err)
	assert.Zero(t, n)
	time.Sleep(10 * time.Millisecond) // so that a retention of a microsecond is over
	n, err = b.Purge(t.Context(), outboxstore.PurgePolicy{Forwarded: time.Microsecond, Chunk: 1})
	require.NoError(t, err)
	assert.Equal(t, int64(1), n, "one chunk")
	n, err = b.Purge(t.Context(), outboxstore.PurgePolicy{Forwarded: time.Microsecond, Dead: -1})
	require.NoError(t, err)
	assert.Equal(t, int64(1), n)
	n, err = b.Purge(t.Context(), outboxstore.PurgePolicy{Dead: time.Microsecond})
	require.NoError(t, err)
	assert.Equal(t, int64(1), n)
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	assert.Positive(t, stats.OldestAge)
	stats.OldestAge = 0
	assert.Equal(t, outboxstore.Stats{Pending: 1, Leased: 1}, stats)
	assert.Equal(t, outboxstore.Enqueued, b.add(t, envelope("published 1"))[0].Outcome)
}

func rowThatCannotBeDecodedComesWithItsFault(t *testing.T, b *outboxBench) {
	b.add(t, envelope("bad"), envelope("good"))
	b.doTable(t, "UPDATE %s SET metadata = '[1' WHERE message_id = 'bad'")
	claimed := b.claim(t, 10)
	require.Equal(t, []string{"bad", "good"}, ids(claimed))
	require.Error(t, claimed[0].Fault)
	require.NoError(t, claimed[1].Fault)
}

func claimRequestIsChecked(t *testing.T, b *outboxBench) {
	_, err := b.Claim(t.Context(), outboxstore.ClaimRequest{})
	for _, field := range []string{"Owner", "Limit", "Lease"} {
		require.ErrorContains(t, err, field)
	}
	_, err = b.Renew(t.Context(), nil, 0)
	require.Error(t, err)
	require.NotErrorIs(t, errors.Unwrap(err), outboxstore.ErrLeaseLost)
}

func completeTakesOnlyTheCurrentReceipt(t *testing.T, b *outboxBench) {
	for _, keep := range []bool{true, false} {
		a, z := fmt.Sprint("a", keep), fmt.Sprint("b", keep)
		b.add(t, envelope(a), envelope(z))
		claimed := b.claim(t, 10)
		forged := claimed[1].Lease
		forged.Receipt = "forged"
		n, err := b.Complete(t.Context(), []outboxstore.Lease{claimed[0].Lease, forged, {Seq: 999, Receipt: "x"}}, keep)
		assert.Equal(t, 1, n)
		var lost *outboxstore.LeaseLostError
		require.ErrorAs(t, err, &lost)
		require.ErrorIs(t, err, outboxstore.ErrLeaseLost)
		assert.Equal(t, []outboxstore.Lease{forged, {Seq: 999, Receipt: "x"}}, lost.Lost)
		assert.NotContains(t, err.Error(), "forged")
		assert.NotContains(t, fmt.Sprintf("%v %+v %#v", lost.Lost, lost.Lost, lost.Lost), "forged", "no format shows a receipt")

		_, err = b.Complete(t.Context(), leases(claimed)[:1], keep)
		require.ErrorIs(t, err, outboxstore.ErrLeaseLost, "a second time is refused")
		n, err = b.Complete(t.Context(), leases(claimed)[1:], keep)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		want := outboxstore.AlreadyEnqueued
		if !keep {
			want = outboxstore.Enqueued
		}
		assert.Equal(t, want, b.add(t, envelope(a))[0].Outcome)
	}
}
