package e2e

import (
	"context"
	stdsql "database/sql"
	"testing"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// received keeps the ids that were published.
type received chan string

func (r received) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		r <- msg.UUID
	}
	return nil
}
func (received) Close() error { return nil }

// C8, beside Watermill's own forwarder over watermill-sql: while a writing transaction stands open
// in the same database, ours forwards what is committed after it began; Watermill's, which reads up
// to the oldest open transaction, forwards nothing until that one ends.
func TestC8_BesideWatermillsForwarder(t *testing.T) {
	db := openPostgres(t, servicetest.PostgresDSN(t))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 2)

	// Watermill's, as its documentation sets it up.
	source, err := wmsql.NewSubscriber(db.DB, wmsql.SubscriberConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, source.SubscribeInitialize("outbox"))
	stock := make(received, 10)
	theirs, err := forwarder.NewForwarder(source, stock, nil, forwarder.Config{ForwarderTopic: "outbox"})
	require.NoError(t, err)
	go func() { stopped <- theirs.Run(ctx) }()
	<-theirs.Running()

	work := uow.New(uow.SQLX(db), dialect.Postgres)
	outbox := outboxstore.New(work)
	forwarded := make(received, 10)
	ours, err := outboxstore.NewForwarder(outbox, forwarded, outboxstore.ForwarderConfig{})
	require.NoError(t, err)
	go func() { stopped <- ours.Run(ctx) }()

	stage := func(id string) {
		require.NoError(t, work.Do(t.Context(), func(ctx context.Context) error {
			tx, err := uow.Tx[*stdsql.Tx](ctx)
			require.NoError(t, err)
			into, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}}, nil)
			require.NoError(t, err)
			err = forwarder.NewPublisher(into, forwarder.PublisherConfig{ForwarderTopic: "outbox"}).Publish("orders", message.NewMessage(id, nil))
			require.NoError(t, err)
			return outbox.Publisher().Publish("orders", message.NewMessageWithContext(ctx, id, nil))
		}))
	}
	next := func(from received) string {
		select {
		case id := <-from:
			return id
		case <-time.After(wait):
			t.Fatal("nothing was forwarded")
			return ""
		}
	}
	stage("before")
	require.Equal(t, "before", next(stock))
	require.Equal(t, "before", next(forwarded))

	open, err := db.Begin()
	require.NoError(t, err)
	_, err = open.Exec(`INSERT INTO effects VALUES ('elsewhere', 'open')`)
	require.NoError(t, err)
	stage("during")
	require.Equal(t, "during", next(forwarded))
	require.Empty(t, stock, "Watermill's forwarder waits for the open transaction")
	require.NoError(t, open.Rollback())
	require.Equal(t, "during", next(stock))

	cancel()
	require.NoError(t, theirs.Close())
	for range 2 {
		require.NoError(t, <-stopped)
	}
	require.NoError(t, source.Close())
}
