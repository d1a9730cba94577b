package storetest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

var errUndo = errors.New("undo")

func appendNeedsAUnitOfWork(t *testing.T, b *outboxBench) {
	_, err := b.Append(t.Context(), envelope("a"))
	require.ErrorIs(t, err, uow.ErrNoTransaction)
	require.ErrorIs(t, b.Publisher().Publish("orders", message.NewMessage("a", nil)), uow.ErrNoTransaction)
}

func rollbackLeavesNothing(t *testing.T, b *outboxBench) {
	err := b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
		_, err := b.Append(ctx, envelope("a"))
		require.NoError(t, err)
		assert.Empty(t, b.claimAsMemory(t), "a staged row is nobody's business")
		return errUndo
	})
	require.ErrorIs(t, err, errUndo)
	require.Empty(t, b.claim(t, 10))
	assert.Equal(t, outboxstore.Enqueued, b.add(t, envelope("a"))[0].Outcome)
}

func savepointTakesItsRowsBack(t *testing.T, b *outboxBench) {
	work := b.UnitOfWork()
	require.NoError(t, work.Do(t.Context(), func(ctx context.Context) error {
		_, err := b.Append(ctx, envelope("kept"))
		require.NoError(t, err)
		require.ErrorIs(t, work.Do(ctx, func(ctx context.Context) error {
			_, err := b.Append(ctx, envelope("undone"))
			require.NoError(t, err)
			return errUndo
		}), errUndo)
		return nil
	}))
	assert.Equal(t, []string{"kept"}, ids(b.claim(t, 10)))
}

func resultsComeInTheOrderGiven(t *testing.T, b *outboxBench) {
	first := envelope("stored")
	first.IdempotencyKey, first.Tenant = "k1", "t"
	seq := b.add(t, first)[0].Seq

	sameKey := envelope("other id")
	sameKey.IdempotencyKey, sameKey.Tenant = "k1", "t"
	otherTenant := envelope("other tenant")
	otherTenant.IdempotencyKey = "k1"
	otherTopic := envelope("stored")
	otherTopic.Topic = "audit"

	results := b.add(t, envelope("z"), envelope("stored"), sameKey, envelope("a"), otherTenant, otherTopic, envelope("z"), sameKey)
	var outcomes []outboxstore.Outcome
	var stored []string
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome)
		stored = append(stored, r.Envelope.Message.UUID)
	}
	yes, no := outboxstore.Enqueued, outboxstore.AlreadyEnqueued
	assert.Equal(t, []outboxstore.Outcome{yes, no, no, yes, yes, yes, no, no}, outcomes)
	assert.Equal(t, []string{"z", "stored", "stored", "a", "other tenant", "stored", "z", "stored"}, stored)
	assert.Equal(t, seq, results[1].Seq)
	assert.Equal(t, seq, results[2].Seq)
	assert.Equal(t, results[0].Seq, results[6].Seq)
	assert.False(t, results[1].Conflict)
	assert.True(t, results[2].Conflict, "same key, other payload")
	assert.Less(t, results[0].Seq, results[3].Seq, "numbers follow the order given, not that of the ids")
	assert.Less(t, results[3].Seq, results[4].Seq)
}

func storedEnvelopeIsReturned(t *testing.T, b *outboxBench) {
	e := envelope("a")
	e.Tenant, e.IdempotencyKey, e.OrderingKey, e.ContentType, e.Source = "t", "ik", "ok", "application/json", "billing"
	e.OccurredAt = time.Date(2020, 1, 2, 3, 4, 5, 678901000, time.UTC)
	e.DueAt = time.Date(2021, 1, 2, 3, 4, 5, 678901000, time.UTC)
	e.Message.Metadata = message.Metadata{"html": "<a href=\"x\">&\u2028</a>", "empty": "", "k\"ey": "\\ \n ü"}
	b.add(t, e)
	again := b.add(t, e)[0]
	require.Equal(t, outboxstore.AlreadyEnqueued, again.Outcome)
	for _, got := range []outboxstore.Envelope{again.Envelope, b.claim(t, 1)[0].Envelope} {
		assert.Equal(t, e.Message.Metadata, got.Message.Metadata)
		assert.Equal(t, e.Message.Payload, got.Message.Payload)
		got.Message = e.Message
		assert.Equal(t, e, got)
	}
}

func everyFaultIsNamedAndTheTransactionStaysUsable(t *testing.T, b *outboxBench) {
	long := strings.Repeat("x", 256)
	require.NoError(t, b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
		bad := envelope(long)
		bad.Topic, bad.Source = "", "a\x00b"
		big := envelope("big")
		big.Message.Payload = make([]byte, outboxstore.DefaultMaxPayload+1)
		big.Message.Metadata = message.Metadata{"k": strings.Repeat("v", outboxstore.MaxMetadata), "bad": "\xff"}
		_, err := b.Append(ctx, envelope("good"), bad, big, envelope(""), outboxstore.Envelope{Topic: "t"})
		for _, part := range []string{
			"envelope 1: outboxstore: the envelope is invalid: Topic is empty", "Source holds a NUL byte", "envelope 1: inbox: the message id is invalid: it has 256 bytes",
			"envelope 2: outboxstore: the envelope is invalid: Message.Payload has 1048577 bytes, at most 1048576", "envelope 2: outboxstore: the envelope is invalid: Message.Metadata",
			"envelope 3: inbox: the message has no id", "envelope 4: outboxstore: the envelope is invalid: Message is nil",
		} {
			assert.ErrorContains(t, err, part)
		}
		assert.ErrorIs(t, err, outboxstore.ErrInvalid)
		assert.ErrorIs(t, err, inbox.ErrNoMessageID)
		assert.ErrorIs(t, err, inbox.ErrInvalidMessageID)
		_, err = b.Append(ctx, envelope("fine"))
		return err
	}))
	assert.Equal(t, []string{"fine"}, ids(b.claim(t, 10)))
}

func payloadIsAnyBytesAndIsCopied(t *testing.T, b *outboxBench) {
	every := make([]byte, 0, 256)
	for i := range 256 {
		every = append(every, byte(i))
	}
	e := envelope("bytes")
	e.Message.Payload = bytes.Clone(every)
	e.Message.Metadata = message.Metadata{"k": "v"}
	empty := envelope("empty")
	empty.Message.Payload = nil
	require.NoError(t, b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
		_, err := b.Append(ctx, e, empty)
		e.Message.Payload[0] = 99
		e.Message.Metadata["k"] = "changed"
		return err
	}))
	claimed := b.claim(t, 10)
	require.Len(t, claimed, 2)
	assert.Equal(t, every, []byte(claimed[0].Envelope.Message.Payload))
	assert.Equal(t, message.Metadata{"k": "v"}, claimed[0].Envelope.Message.Metadata)
	assert.Empty(t, claimed[1].Envelope.Message.Payload)
}

func anyNumberInOneCall(t *testing.T, b *outboxBench) {
	n := 10_000
	if b.SingleWriter {
		n = 1_100 // several statements as well; under the race detector SQLite in Go is thirty times slower
	}
	batch := make([]outboxstore.Envelope, n)
	for i := range batch {
		batch[i] = envelope(fmt.Sprintf("id-%d", (i*7919)%n))
	}
	results := b.add(t, batch...)
	require.Len(t, results, n)
	for i, r := range results {
		require.Equal(t, outboxstore.Enqueued, r.Outcome)
		require.Equal(t, batch[i].Message.UUID, r.Envelope.Message.UUID)
		if i > 0 {
			require.Greater(t, r.Seq, results[i-1].Seq)
		}
	}
	for _, r := range b.add(t, batch...) {
		require.Equal(t, outboxstore.AlreadyEnqueued, r.Outcome)
	}
}

// Two transactions stage the same messages in opposite order, again and again: neither a deadlock
// nor a lost message, and each message once.
func oppositeOrderCannotDeadlock(t *testing.T, b *outboxBench) {
	rounds, n := 10, 200
	if b.SingleWriter {
		rounds, n = 3, 50
	}
	for round := range rounds {
		var wg sync.WaitGroup
		fresh := make([]int, 2)
		for side := range 2 {
			batch := make([]outboxstore.Envelope, n)
			for i := range batch {
				at := i
				if side == 1 {
					at = n - 1 - i
				}
				batch[i] = envelope(fmt.Sprintf("%d-%d", round, at))
				if at%2 == 0 { // the same business key under an id of its own
					batch[i] = envelope(fmt.Sprintf("%d-%d-%d", side, round, (at*7919)%1000))
					batch[i].IdempotencyKey = fmt.Sprintf("%d-%d", round, at)
				}
			}
			wg.Go(func() {
				store := []OutboxStore{b.OutboxStore, b.second}[side]
				assert.NoError(t, store.UnitOfWork().Do(context.Background(), func(ctx context.Context) error {
					results, err := store.Append(ctx, batch...)
					for _, r := range results {
						if r.Outcome == outboxstore.Enqueued {
							fresh[side]++
						}
					}
					return err
				}))
			})
		}
		wg.Wait()
		require.Equal(t, n, fresh[0]+fresh[1])
	}
}

// The second transaction waits for the first one, and sees what became of it.
func duplicateOfAnOpenTransactionWaits(t *testing.T, b *outboxBench) {
	for _, outcome := range []struct {
		err  error
		want outboxstore.Outcome
	}{{nil, outboxstore.AlreadyEnqueued}, {errUndo, outboxstore.Enqueued}} {
		id := fmt.Sprint("m", outcome.want)
		staged, finish := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = b.UnitOfWork().Do(context.Background(), func(ctx context.Context) error {
				_, err := b.Append(ctx, envelope(id))
				assert.NoError(t, err)
				close(staged)
				<-finish
				return outcome.err
			})
		})
		<-staged
		time.AfterFunc(50*time.Millisecond, func() { close(finish) })
		require.NoError(t, b.second.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
			results, err := b.second.Append(ctx, envelope(id), envelope(id+"+"))
			require.NoError(t, err)
			assert.Equal(t, outcome.want, results[0].Outcome)
			assert.Equal(t, outboxstore.Enqueued, results[1].Outcome)
			_, err = b.second.Append(ctx, envelope(id+"++"))
			return err
		}))
		wg.Wait()
	}
}

// The caller's transaction decides, whether it is given or carried.
func callersTransactionIsJoined(t *testing.T, b *outboxBench) {
	store, ok := b.OutboxStore.(TxAppender)
	require.True(t, ok, "the store cannot join")
	require.ErrorIs(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		tx, err := uow.Tx[*sql.Tx](ctx)
		require.NoError(t, err)
		results, err := store.AppendTx(context.Background(), tx, envelope("given"))
		require.NoError(t, err)
		assert.Equal(t, outboxstore.Enqueued, results[0].Outcome)
		results, err = b.Append(ctx, envelope("given"), envelope("carried"))
		require.NoError(t, err)
		assert.Equal(t, []outboxstore.Outcome{outboxstore.AlreadyEnqueued, outboxstore.Enqueued}, []outboxstore.Outcome{results[0].Outcome, results[1].Outcome})
		_, err = store.AppendTx(context.Background(), tx, envelope("refused"), envelope(""))
		require.ErrorIs(t, err, inbox.ErrNoMessageID)
		return errUndo
	}), errUndo)
	require.Empty(t, b.claim(t, 1))
}

func ownTransactionWhateverTheContextCarries(t *testing.T, b *outboxBench) {
	require.ErrorIs(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		_, err := b.Append(ctx, envelope("carried"))
		require.NoError(t, err)
		_, err = b.AppendOwn(ctx, envelope("own"))
		require.NoError(t, err)
		return errUndo
	}), errUndo)
	require.Equal(t, []string{"own"}, ids(b.claim(t, 10)))
}

func waitForAnOpenTransactionIsBounded(t *testing.T, b *outboxBench) {
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		_, err := b.Append(ctx, envelope("a"))
		require.NoError(t, err)
		_, err = b.second.AppendOwn(t.Context(), envelope("a"))
		require.Error(t, err)
		return nil
	}))
	require.Equal(t, []string{"a"}, ids(b.claim(t, 10)))
}

func lockTimeoutOfTheTransactionIsUntouched(t *testing.T, b *outboxBench) {
	b.add(t, envelope("old"))
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		require.NoError(t, b.exec(ctx, "SET LOCAL lock_timeout = '1234ms'"))
		for _, id := range []string{"new", "old"} {
			_, err := b.Append(ctx, envelope(id))
			require.NoError(t, err)
			timeout, err := query[string](ctx, b.work, "SHOW lock_timeout")
			require.NoError(t, err)
			assert.Equal(t, []string{"1234ms"}, timeout)
		}
		return nil
	}))
}
