package middleware_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// deliver hands a message over as a broker does: again and again until it is acked.
func deliver(handler message.HandlerFunc, id string) (deliveries int) {
	for {
		deliveries++
		msg := message.NewMessageWithContext(context.Background(), id, nil)
		if _, err := handler(msg); err == nil {
			return deliveries
		}
	}
}

// failsOnce is a handler whose first run fails, as any does now and then.
func failsOnce(charges *int) message.HandlerFunc {
	run := 0
	return func(*message.Message) ([]*message.Message, error) {
		if run++; run == 1 {
			return nil, errors.New("database connection lost")
		}
		*charges++
		return nil, nil
	}
}

// Watermill's Deduplicator remembers a message before its handler has succeeded. When the handler
// fails, the redelivery is dropped and the message is lost.
func Example_deduplicatorLosesAFailedMessage() {
	charges := 0
	deduplicator := &wm.Deduplicator{KeyFactory: func(msg *message.Message) (string, error) { return msg.UUID, nil }}
	handler := deduplicator.Middleware(failsOnce(&charges))

	fmt.Println("deliveries:", deliver(handler, "order-1"))
	fmt.Println("charges:", charges)
	// Output:
	// deliveries: 2
	// charges: 0
}

// The inbox remembers a message in the handler's own transaction: the row of a failed handler is
// rolled back with it, so the redelivery runs; a redelivery of a success is skipped.
func Example() {
	charges := 0
	work := uow.NewMemory() // with a database: uow.New(uow.SQLX(db), dialect.Postgres)
	once := middleware.Inbox(inboxstore.NewMemory(work), middleware.InboxConfig{
		Consumer: func(*message.Message) string { return "billing" },
	})
	handler := middleware.UnitOfWork(work, middleware.UnitOfWorkConfig{})(once(failsOnce(&charges)))

	fmt.Println("deliveries:", deliver(handler, "order-1"))
	fmt.Println("charges:", charges)
	deliver(handler, "order-1") // the broker lost the ack and delivers again
	fmt.Println("charges after a redelivery:", charges)
	// Output:
	// deliveries: 2
	// charges: 1
	// charges after a redelivery: 1
}
