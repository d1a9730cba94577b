package main

import (
	"context"
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// This file is the application: an order service, a billing consumer and a shipping consumer, as
// you would write them. None of them knows that messages come twice, that handlers fail halfway
// or that processes are killed. The other files run them, disturb them and count.

// OrderPlaced and OrderCharged are the events, and the topics' payloads.
type (
	OrderPlaced struct {
		OrderID int64 `json:"order_id"`
		Cents   int64 `json:"cents"`
	}
	OrderCharged struct {
		OrderID int64 `json:"order_id"`
	}
)

// Topics are the names under which the events travel.
type Topics struct{ Placed, Charged string }

// Order is a row of the table orders.
type Order struct {
	ID    int64 `db:"id"`
	Cents int64 `db:"cents"`
}

// OrderService takes orders.
type OrderService struct {
	Work   *uow.UnitOfWork
	Outbox message.Publisher // stages into the unit of work, publishes after the commit
	Topic  string
}

// Place stores the order and announces it: both or neither, whatever fails in between. A caller
// that does not know whether an earlier call succeeded calls it again: a known order changes
// nothing and is not announced a second time.
func (s OrderService) Place(ctx context.Context, order Order) error {
	return s.Work.Do(ctx, func(ctx context.Context) error {
		tx, err := uow.Tx[*sqlx.Tx](ctx)
		if err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx,
			`INSERT INTO orders (id, cents) VALUES ($1, $2) ON CONFLICT DO NOTHING`, order.ID, order.Cents)
		if err != nil {
			return err
		}
		if inserted, err := result.RowsAffected(); err != nil || inserted == 0 {
			return err
		}
		placed, err := event(OrderPlaced{OrderID: order.ID, Cents: order.Cents})
		if err != nil {
			return err
		}
		placed.SetContext(ctx)
		return s.Outbox.Publish(s.Topic, placed)
	}, uow.Retry(10)) // after a deadlock or a busy database, in a fresh transaction
}

// Charge is the billing consumer. Its row, the event that it returns and the note that this message
// is handled are committed together.
func Charge(msg *message.Message) ([]*message.Message, error) {
	var placed OrderPlaced
	if err := json.Unmarshal(msg.Payload, &placed); err != nil {
		return nil, err
	}
	tx, err := uow.Tx[*sqlx.Tx](msg.Context())
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(msg.Context(),
		`INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, placed.OrderID, placed.Cents); err != nil {
		return nil, err
	}
	charged, err := event(OrderCharged{OrderID: placed.OrderID})
	if err != nil {
		return nil, err
	}
	return message.Messages{charged}, nil
}

// Ship is the shipping consumer.
func Ship(msg *message.Message) error {
	var charged OrderCharged
	if err := json.Unmarshal(msg.Payload, &charged); err != nil {
		return err
	}
	tx, err := uow.Tx[*sqlx.Tx](msg.Context())
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(msg.Context(), `INSERT INTO shipments (order_id) VALUES ($1)`, charged.OrderID)
	return err
}

func event(payload any) (*message.Message, error) {
	text, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	return message.NewMessage(watermill.NewUUID(), text), nil
}
