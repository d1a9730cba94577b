package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
)

func (b *inboxBench) purger(t *testing.T) Purger {
	t.Helper()
	purger, ok := b.store.(Purger)
	if !ok {
		t.Skip("the store does not purge")
	}
	return purger
}

func purge(t *testing.T, b *inboxBench) {
	purger := b.purger(t)
	const rows, limit, atOnce = 5, 2, time.Microsecond
	for i := range rows {
		key := id(fmt.Sprint("m", i))
		key.IdempotencyKey = key.MessageID // a row is one row, however it is found
		b.requireOutcome(t, inbox.Fresh, key)
	}
	b.bury(t, id("dead"))
	for _, keep := range []inboxstore.Retention{{}, {Processed: time.Hour, Dead: time.Hour}, {Dead: time.Hour}} {
		n, err := purger.Purge(t.Context(), keep, limit)
		require.NoError(t, err)
		require.Zero(t, n, "%+v", keep)
	}
	var chunks []int64
	total := int64(0)
	// A database's clock may tick in milliseconds, so the youngest row may need a moment to be old.
	require.Eventually(t, func() bool {
		n, err := purger.Purge(t.Context(), inboxstore.Retention{Processed: atOnce, Dead: time.Hour}, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, n, int64(limit))
		if n > 0 {
			chunks = append(chunks, n)
		}
		total += n
		return total >= rows
	}, patience, time.Millisecond)
	require.Equal(t, int64(rows), total, "in chunks of %v", chunks)
	n, err := purger.Purge(t.Context(), inboxstore.Retention{Processed: atOnce}, limit)
	require.NoError(t, err)
	require.Zero(t, n, "the dead row has a retention of its own")

	if b.SQL {
		b.do(t, `DELETE FROM storetest_effects`) // their rows are gone, as they should be
	} else {
		b.done = nil
	}
	key := id("m0")
	key.IdempotencyKey = "m0"
	b.requireOutcome(t, inbox.Fresh, key) // neither identity is left of it
	require.Eventually(t, func() bool {
		n, err := purger.Purge(t.Context(), inboxstore.Retention{Dead: atOnce}, limit)
		require.NoError(t, err)
		return n == 1
	}, patience, time.Millisecond)
	b.requireOutcome(t, inbox.Duplicate, key)
}

func purgeUnderWay(t *testing.T, b *inboxBench) {
	purger := b.purger(t)
	first, release := b.hold(t, id("m"))
	n, err := purger.Purge(t.Context(), inboxstore.Retention{Processed: time.Microsecond}, 10)
	require.NoError(t, err)
	require.Zero(t, n)
	release <- nil
	require.NoError(t, receive(t, first).err)
	b.requireOutcome(t, inbox.Duplicate, id("m"))
}

func check(t *testing.T, b *inboxBench) {
	if checker, ok := b.store.(Checker); ok {
		require.NoError(t, checker.Check(t.Context()))
	}
}
