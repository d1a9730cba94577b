package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/jmoiron/sqlx"
	"go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/sync/errgroup"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/router"
)

// runPass puts the load through the application on a SQLite file and the misbehaving broker.
func runPass(ctx context.Context, cfg config, p pass) (result, error) {
	db, err := openPool("sqlite", sqliteDSN(filepath.Join(cfg.directory, p.file+".db")), sqliteConnections)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = db.Close() }()
	if err := createTables(ctx, db, dialect.SQLite); err != nil {
		return result{}, err
	}

	count := newMemoryTally()
	dice := newDice(cfg.seed)
	broker := newBroker(cfg.workers, dice, count)
	reader := metric.NewManualReader()
	app := newStack(db, dialect.SQLite, Topics{Placed: "orders.placed", Charged: "orders.charged"})

	routerConfig := app.routerConfig(p.inbox, metric.NewMeterProvider(metric.WithReader(reader)))
	routerConfig.Publisher = broker // so this router runs the forwarder of the outbox too
	r, err := router.New(routerConfig, newLogger(cfg))
	if err != nil {
		return result{}, err
	}
	m := mishaps{dice: dice, count: count}
	app.addConsumer(r, billing, broker.bind(billing, app.topics.Placed), m)
	app.addConsumer(r, shipping, broker.bind(shipping, app.topics.Charged), m)

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.Run(groupCtx) })
	group.Go(func() error { return app.placeOrders(groupCtx, cfg.orders, cfg.workers) })
	group.Go(func() error {
		return errors.Join(awaitQuiet(groupCtx, cfg, p, db, broker), r.Close())
	})
	if err := group.Wait(); err != nil {
		return result{}, err
	}
	if err := readSkipped(ctx, reader, count); err != nil {
		return result{}, err
	}
	c, err := readCounts(ctx, db)
	return newResult(p.name, count, c, cfg.orders), err
}

// awaitQuiet waits until all orders are placed and nothing moves any more: no delivery is open and
// nothing waits in the outbox. A message that goes from one to the other while we look shows in
// the broker's number of deliveries.
func awaitQuiet(ctx context.Context, cfg config, p pass, db *sqlx.DB, b *broker) error {
	shown := newProgress(cfg.stderr, p.name, cfg.orders)
	defer shown.end()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		before, quietBefore := b.quiet()
		c, err := readCounts(ctx, db)
		if err != nil {
			return err
		}
		after, quietAfter := b.quiet()
		shown.show(c, "")
		if quietBefore && quietAfter && before == after && c.Orders == cfg.orders && c.Unfinished == 0 {
			return nil
		}
	}
}
