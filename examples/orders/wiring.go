package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/sync/errgroup"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// The consumers' names. The inbox remembers messages under them.
const (
	billing  = "billing"
	shipping = "shipping"
)

var consumers = []string{billing, shipping}

// stack is the library on one open database.
type stack struct {
	db     *sqlx.DB
	work   *uow.UnitOfWork
	inbox  *inboxstore.Store
	outbox *outboxstore.Store
	topics Topics
}

func newStack(db *sqlx.DB, d dialect.Dialect, topics Topics) stack {
	work := uow.New(uow.SQLX(db), d)
	return stack{db: db, work: work, inbox: inboxstore.New(work), outbox: outboxstore.New(work), topics: topics}
}

// routerConfig differs from the defaults only in what a demonstration cannot wait for.
func (s stack) routerConfig(inbox router.Switch, meters metric.MeterProvider) router.Config {
	return router.Config{
		UnitOfWork:    s.work,
		Inbox:         s.inbox,
		Outbox:        s.outbox,
		EnableInbox:   inbox,
		Retry:         router.Retry{Interval: 5 * time.Millisecond},
		Forwarder:     forwarderConfig(),
		CloseTimeout:  10 * time.Second,
		MeterProvider: meters,
	}
}

// addConsumer adds one of the two consumers. What billing returns goes to the outbox, so it needs
// no publisher.
func (s stack) addConsumer(r *router.Router, name string, subscriber message.Subscriber, m mishaps) {
	switch name {
	case billing:
		r.AddHandler(billing, s.topics.Placed, subscriber, s.topics.Charged, nil, m.handler(billing, Charge))
	case shipping:
		r.AddConsumerHandler(shipping, s.topics.Charged, subscriber, m.consumerHandler(shipping, Ship))
	}
}

// placeOrders places the orders 1 to n that are not placed yet, several at a time.
func (s stack) placeOrders(ctx context.Context, n, workers int) error {
	var known []int64
	if err := s.db.SelectContext(ctx, &known, `SELECT id FROM orders`); err != nil {
		return err
	}
	placed := make(map[int64]bool, len(known))
	for _, id := range known {
		placed[id] = true
	}
	service := OrderService{Work: s.work, Outbox: s.outbox.Publisher(), Topic: s.topics.Placed}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for id := int64(1); id <= int64(n) && groupCtx.Err() == nil; id++ {
		if !placed[id] {
			group.Go(func() error { return service.Place(groupCtx, Order{ID: id, Cents: 100 + id%900}) })
		}
	}
	return errors.Join(group.Wait(), ctx.Err())
}

func newLogger(cfg config) watermill.LoggerAdapter {
	if cfg.logger == nil {
		return watermill.NopLogger{}
	}
	return watermill.NewSlogLogger(cfg.logger)
}

// forwarderConfig has a short lease: what a killed forwarder holds is published by another one when
// its lease has expired, and the demonstration should not wait a minute for that.
func forwarderConfig() outboxstore.ForwarderConfig {
	return outboxstore.ForwarderConfig{Lease: 2 * time.Second}
}
