package outboxstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func conn(t testing.TB, ctx context.Context) *sql.Tx { //nolint:revive // the test comes first in every helper here
	t.Helper()
	tx, err := uow.Tx[*sql.Tx](ctx)
	require.NoError(t, err)
	return tx
}

func (b bench) isSQLite() bool { return b.UnitOfWork().Dialect().Name == "sqlite3" }

func TestC1_PublisherStagesIntoTheMessagesOwnUnitOfWork(t *testing.T) {
	eachStore(t, func(t *testing.T, b bench) {
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
	})
}

func TestC1_PublisherRefusesAnotherPayloadUnderTheSameID(t *testing.T) {
	eachStore(t, func(t *testing.T, b bench) {
		require.NoError(t, b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
			require.NoError(t, b.Stage(ctx, "t", message.NewMessage("a", []byte("one"))))
			require.NoError(t, b.Stage(ctx, "t", message.NewMessage("a", []byte("one"))), "a repeat is no error")
			require.NoError(t, b.Stage(ctx, "u", message.NewMessage("a", []byte("two"))), "nor is another topic")
			err := b.Stage(ctx, "t", message.NewMessage("a", []byte("two")))
			require.ErrorIs(t, err, outboxstore.ErrConflict)
			return nil
		}))
		assert.Len(t, b.claim(t, 10), 2)
	})
}

func TestC1_PublisherWritesNothingWhenOneMessageHasNoUnitOfWork(t *testing.T) {
	eachStore(t, func(t *testing.T, b bench) {
		require.NoError(t, b.UnitOfWork().Do(t.Context(), func(ctx context.Context) error {
			err := b.Publisher().Publish("t", message.NewMessageWithContext(ctx, "a", nil), message.NewMessage("b", nil))
			require.ErrorIs(t, err, uow.ErrNoTransaction)
			return nil
		}))
		assert.Empty(t, b.claim(t, 10))
	})
}

func TestC9_CommitWakes(t *testing.T) {
	eachStore(t, func(t *testing.T, b bench) {
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
	})
}

func TestA14_CheckNamesTheRemedy(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b bench) {
		require.NoError(t, b.Check(t.Context()))
		version := b.UnitOfWork().Dialect().Names().Rewrite("inbox_schema")
		_, err := b.db.Exec("UPDATE " + version + " SET version = 99")
		require.NoError(t, err)
		require.ErrorContains(t, b.Check(t.Context()), "upgrade the library")
		_, err = b.db.Exec("DELETE FROM " + version)
		require.NoError(t, err)
		require.ErrorContains(t, b.Check(t.Context()), "run the migrations")
		_, err = b.db.Exec("DROP TABLE " + b.table())
		require.NoError(t, err)
		require.ErrorContains(t, b.Check(t.Context()), "run the migrations")
	})
}

func TestD4_FaultsAreReportedBeforeAnythingIsOpened(t *testing.T) {
	store := outboxstore.New(uow.NewMemory(), outboxstore.MaxPayload(0), outboxstore.LockWait(0))
	require.ErrorContains(t, store.Validate(), "outbox.sql")
	memory := outboxstore.NewMemory(uow.NewMemory(), outboxstore.MaxPayload(0), outboxstore.LockWait(0))
	require.ErrorContains(t, memory.Validate(), "MaxPayload is 0")
	require.ErrorContains(t, memory.Validate(), "LockWait is 0s")
	require.Error(t, outboxstore.New(nil).Validate())
}
