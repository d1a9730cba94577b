package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// D4: one message never needs two connections at once. Producer, inbox, outbox, forwarder and
// consumers share a pool of one.
func TestD4_PoolOfOneRunsTheWholePath(t *testing.T) {
	const messages = 100
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.open(t)
			db.SetMaxOpenConns(1)
			work := uow.New(uow.SQLX(db), d.dialect)
			outbox := outboxstore.New(work)
			broker := twice{gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)}
			defer broker.Close()
			r, err := router.New(router.Config{UnitOfWork: work, Inbox: inboxstore.New(work), Outbox: outbox, Publisher: broker}, nil)
			require.NoError(t, err)
			source := struct{ message.Subscriber }{broker}
			r.AddHandler("first", "in", source, "middle", nil, func(msg *message.Message) ([]*message.Message, error) {
				return []*message.Message{msg}, effect(msg, "first")
			})
			r.AddConsumerHandler("second", "middle", source, func(msg *message.Message) error { return effect(msg, "second") })
			stopped := make(chan error, 1)
			go func() { stopped <- r.Run(t.Context()) }()
			<-r.Running()
			for i := range messages {
				require.NoError(t, work.Do(t.Context(), func(ctx context.Context) error {
					return outbox.Publisher().Publish("in", delivery(ctx, i))
				}))
			}
			require.Eventually(t, func() bool { return effects(t, db, "second") >= messages }, 3*wait, 20*time.Millisecond)
			require.NoError(t, r.Close())
			require.NoError(t, <-stopped)
			requireOnce(t, db, "first", messages)
			requireOnce(t, db, "second", messages)
		})
	}
}
