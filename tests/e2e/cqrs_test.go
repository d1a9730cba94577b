package e2e

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
	"github.com/watermill-inbox/watermill-inbox/tests/testlog"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

const wait = 20 * time.Second

// OrderPlaced and OrderCharged are the events of the test.
type (
	OrderPlaced  struct{ ID string }
	OrderCharged struct{ ID string }
)

// twice is an in-process broker that delivers every message two times, and that the router takes
// for a real one.
type twice struct{ *gochannel.GoChannel }

func (b twice) Publish(topic string, messages ...*message.Message) error {
	return errors.Join(b.GoChannel.Publish(topic, messages...), b.GoChannel.Publish(topic, messages...))
}

// A12: Watermill's EventBus and EventProcessor, on the embedded router and unchanged, get the
// unit of work, the inbox, the outbox, the closing and the checks at the start.
func TestA12_CQRSOnTheEmbeddedRouter(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.open(t)
			work := uow.New(uow.SQLX(db), d.dialect)
			outbox := outboxstore.New(work)
			broker := twice{gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)}
			defer broker.Close()
			log := testlog.New()
			r, err := router.New(router.Config{
				UnitOfWork: work, Inbox: inboxstore.New(work), Outbox: outbox, Publisher: broker,
			}, log)
			require.NoError(t, err)

			bus := eventBus(t, outbox.Publisher())
			processor, err := cqrs.NewEventProcessorWithConfig(r.Router, cqrs.EventProcessorConfig{
				GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return p.EventName, nil },
				SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
					return router.Configure(struct{ message.Subscriber }{broker}, router.SubscriberConfig{}), nil
				},
				Marshaler: cqrs.JSONMarshaler{},
			})
			require.NoError(t, err)

			var failures atomic.Int32
			begun, finish := make(chan bool), make(chan bool)
			require.NoError(t, processor.AddHandlers(
				cqrs.NewEventHandler("billing", func(ctx context.Context, e *OrderPlaced) error {
					if err := record(ctx, "billing", e.ID); err != nil {
						return err
					}
					if err := bus.Publish(ctx, OrderCharged(*e)); err != nil {
						return err
					}
					if failures.Add(1) == 1 {
						return errPlanned // the charge and the event must go, and come back once
					}
					return nil
				}),
				cqrs.NewEventHandler("shipping", func(ctx context.Context, e *OrderCharged) error {
					if e.ID == "last" {
						begun <- true
						<-finish
					}
					return record(ctx, "shipping", e.ID)
				}),
			))

			stopped := make(chan error, 1)
			go func() { stopped <- r.Run(t.Context()) }()
			<-r.Running()
			place := func(id string) {
				require.NoError(t, work.Do(t.Context(), func(ctx context.Context) error { return bus.Publish(ctx, OrderPlaced{ID: id}) }))
			}
			for i := range 20 {
				place(id(i))
			}
			require.Eventually(t, func() bool { return effects(t, db, "shipping") == 20 }, wait, 10*time.Millisecond)

			// Closing: the handler that has begun may finish and commit.
			place("last")
			<-begun
			closed := make(chan error, 1)
			go func() { closed <- r.Close() }()
			require.Eventually(t, func() bool {
				return log.Has("info", "Closing router")
			}, wait, time.Millisecond)
			close(finish)
			require.NoError(t, <-closed)
			require.NoError(t, <-stopped)
			require.Equal(t, 21, effects(t, db, "billing"))
			require.Equal(t, 21, effects(t, db, "shipping"))
			require.Zero(t, db.Stats().InUse)
		})
	}
}

func eventBus(t *testing.T, publisher message.Publisher) *cqrs.EventBus {
	bus, err := cqrs.NewEventBusWithConfig(publisher, cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) { return p.EventName, nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	require.NoError(t, err)
	return bus
}

// A14: the checks at the start hold for handlers of a cqrs processor too.
func TestA14_MissingTablesFailTheStart(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.open(t)
			_, err := db.Exec(`UPDATE inbox_schema SET version = 0`)
			require.NoError(t, err)
			work := uow.New(uow.SQLX(db), d.dialect)
			start := func() error {
				r, err := router.New(router.Config{UnitOfWork: work, Inbox: inboxstore.New(work)}, nil)
				require.NoError(t, err)
				return r.Run(t.Context())
			}
			require.ErrorContains(t, start(), "the tables are at version 0, this release needs 1; run the migrations")
			_, err = db.Exec(`UPDATE inbox_schema SET version = 99`)
			require.NoError(t, err)
			require.ErrorContains(t, start(), "newer than")
			_, err = db.Exec(`DROP TABLE inbox_schema`)
			require.NoError(t, err)
			require.ErrorContains(t, start(), "the tables are not there")
		})
	}
}

func record(ctx context.Context, consumer, id string) error {
	tx, err := uow.Tx[*sql.Tx](ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO effects (consumer, message_id) VALUES ($1, $2)`, consumer, id)
	return err
}
