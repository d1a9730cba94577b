// The README's first program: a billing consumer on Postgres and RabbitMQ that charges each order
// once, however often the broker delivers it, and a producer whose event is published if and only
// if its order is committed. The two DSNs come from the environment.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/migrate"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	logger := watermill.NewSlogLogger(slog.Default())
	if os.Getenv("POSTGRES_DSN") == "" || os.Getenv("AMQP_URL") == "" {
		log.Fatal("set POSTGRES_DSN and AMQP_URL, such as postgres://localhost/app and amqp://guest:guest@localhost:5672/")
	}

	db, err := sqlx.Open("postgres", os.Getenv("POSTGRES_DSN"))
	check(err)
	defer db.Close()
	check(migrate.Up(ctx, db.DB, dialect.Postgres))
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS charges (order_id text NOT NULL)`)
	check(err)

	queue := amqp.NewDurableQueueConfig(os.Getenv("AMQP_URL"))
	queue.Publish.ConfirmDelivery = true // else what a broken connection loses counts as published
	subscriber, err := amqp.NewSubscriber(queue, logger)
	check(err)
	publisher, err := amqp.NewPublisher(queue, logger)
	check(err)
	defer publisher.Close()

	check(run(ctx, db, subscriber, publisher, logger))
}

func run(ctx context.Context, db *sqlx.DB, subscriber message.Subscriber, publisher message.Publisher, logger watermill.LoggerAdapter) error {
	work := uow.New(uow.SQLX(db), dialect.Postgres) // db is yours to open and close
	inbox, outbox := inboxstore.New(work), outboxstore.New(work)

	r, err := router.New(router.Config{UnitOfWork: work, Inbox: inbox, Outbox: outbox, Publisher: publisher}, logger)
	if err != nil {
		return err
	}
	r.AddConsumerHandler("billing", "orders.placed", subscriber, func(msg *message.Message) error {
		tx, err := uow.Tx[*sqlx.Tx](msg.Context())
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(msg.Context(), `INSERT INTO charges (order_id) VALUES ($1)`, string(msg.Payload))
		return err // committed with the inbox row, or not at all
	})

	go func() {
		<-r.Running()
		fmt.Println("placing order 1:", place(ctx, work, outbox, "1"))
	}()
	return r.Run(ctx)
}

// place writes an order and stages its event in one transaction.
func place(ctx context.Context, work *uow.UnitOfWork, outbox *outboxstore.Store, order string) error {
	return work.Do(ctx, func(ctx context.Context) error {
		// … insert the order with uow.Tx here; the event is committed with it, or not at all.
		msg := message.NewMessageWithContext(ctx, watermill.NewULID(), []byte(order))
		return outbox.Publisher().Publish("orders.placed", msg)
	})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
