package storetest

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func publisherStagesIntoTheMessagesOwnUnitOfWork(t *testing.T, b *outboxBench) {
	publisher := b.Publisher(outboxstore.PublisherConfig{Describe: func(e *outboxstore.Envelope) { e.Source = "sales" }})
	require.NoError(t, b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
		var messages []*message.Message
		for _, id := range []string{"b", "a"} {
			m := message.NewMessageWithContext(ctx, id, []byte(id))
			outboxstore.WithOrderingKey(m, "key")
			outboxstore.WithIdempotencyKey(m, "tenant", "key of "+id)
			messages = append(messages, m)
		}
		return publisher.Publish("topic", messages...)
	}))
	require.NoError(t, publisher.Close())
	claimed := b.claim(t, 10)
	require.Equal(t, []string{"b", "a"}, ids(claimed))
	e := claimed[0].Envelope
	assert.Equal(t, []string{"topic", "key", "tenant", "key of b", "sales"}, []string{e.Topic, e.OrderingKey, e.Tenant, e.IdempotencyKey, e.Source})
}

func publisherRefusesAnotherPayloadUnderTheSameID(t *testing.T, b *outboxBench) {
	require.NoError(t, b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
		require.NoError(t, b.Stage(ctx, "t", message.NewMessage("a", []byte("one"))))
		require.NoError(t, b.Stage(ctx, "t", message.NewMessage("a", []byte("one"))), "a repeat is no error")
		require.NoError(t, b.Stage(ctx, "u", message.NewMessage("a", []byte("two"))), "nor is another topic")
		err := b.Stage(ctx, "t", message.NewMessage("a", []byte("two")))
		require.ErrorIs(t, err, outboxstore.ErrConflict)
		return nil
	}))
	assert.Len(t, b.claim(t, 10), 2)
}

func publisherWritesNothingWhenOneMessageHasNoUnitOfWork(t *testing.T, b *outboxBench) {
	require.NoError(t, b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
		err := b.Publisher().Publish("t", message.NewMessageWithContext(ctx, "a", nil), message.NewMessage("b", nil))
		require.ErrorIs(t, err, uow.ErrNoTransaction)
		return nil
	}))
	assert.Empty(t, b.claim(t, 10))
}

func commitWakes(t *testing.T, b *outboxBench) {
	require.ErrorIs(t, b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
		_, err := b.Append(ctx, envelope("a"))
		require.NoError(t, err)
		return errUndo
	}), errUndo)
	assert.Empty(t, b.Wake(), "nothing was committed")
	b.add(t, envelope("a"))
	assert.Len(t, b.Wake(), 1)
	<-b.Wake()
	b.add(t, envelope("a"))
	assert.Empty(t, b.Wake(), "nothing is new")
}

func checkNamesTheRemedy(t *testing.T, b *outboxBench) {
	require.NoError(t, b.Check(t.Context()))
	names := b.work.Dialect().Names()
	b.doTable(t, "ALTER TABLE %s RENAME TO storetest_hidden")
	require.ErrorContains(t, b.Check(t.Context()), "run the migrations", "the version alone is no proof")
	b.doTable(t, "ALTER TABLE storetest_hidden RENAME TO %s")
	version := names.Rewrite("inbox_schema")
	b.do(t, "UPDATE "+version+" SET version = 99")
	require.ErrorContains(t, b.Check(t.Context()), "upgrade the library")
	b.do(t, "DELETE FROM "+version)
	require.ErrorContains(t, b.Check(t.Context()), "run the migrations")
}
