package main

import (
	"context"

	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"  // the driver of the real mode
	_ "modernc.org/sqlite" // the driver of the default mode

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/migrate"
)

// sqliteDSN opens a file that many goroutines write to. WAL lets readers and the writer work at the
// same time. A transaction asks for the write lock at its start (immediate), because one that reads
// first and writes later is refused at once when another one wrote in between. synchronous NORMAL
// saves the fsync of each commit: a power cut may then take back the latest commits, an end of the
// process may not, and the demonstration has no power cuts.
func sqliteDSN(path string) string {
	return "file:" + path +
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
}

// sqliteConnections is how many connections compete for the one write lock of a SQLite file. The
// lock goes to whoever asks at the right moment, so among many somebody waits very long; the pool
// in front of them is fair.
const sqliteConnections = 4

// openPool opens a pool that keeps its connections: making one costs more than a transaction.
func openPool(driver, dsn string, connections int) (*sqlx.DB, error) {
	db, err := sqlx.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// The application's tables, in SQL that SQLite and Postgres share. charges and shipments have no
// unique constraint on purpose: whatever takes effect twice stands there twice, to be counted.
const tables = `
CREATE TABLE orders (
	id    BIGINT PRIMARY KEY,
	cents BIGINT NOT NULL
);
CREATE TABLE charges (
	order_id BIGINT NOT NULL,
	cents    BIGINT NOT NULL
);
CREATE TABLE shipments (
	order_id BIGINT NOT NULL
);`

// createTables makes the library's tables and the application's.
func createTables(ctx context.Context, db *sqlx.DB, d dialect.Dialect) error {
	if err := migrate.Up(ctx, db.DB, d); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, tables)
	return err
}

// counts are what stands in the tables.
type counts struct {
	Orders     int `db:"orders"`
	Charges    int `db:"charges"`    // rows
	Charged    int `db:"charged"`    // orders that have one
	Shipments  int `db:"shipments"`  // rows
	Shipped    int `db:"shipped"`    // orders that have one
	Unfinished int `db:"unfinished"` // messages in the outbox that are still to be published
}

func readCounts(ctx context.Context, db *sqlx.DB) (c counts, err error) {
	err = db.GetContext(ctx, &c, `
		SELECT (SELECT count(*) FROM orders) AS orders,
		       (SELECT count(*) FROM charges) AS charges,
		       (SELECT count(DISTINCT order_id) FROM charges) AS charged,
		       (SELECT count(*) FROM shipments) AS shipments,
		       (SELECT count(DISTINCT order_id) FROM shipments) AS shipped,
		       (SELECT count(*) FROM outbox_messages WHERE state IN ('pending', 'leased')) AS unfinished`)
	return c, err
}

// done reports whether every order has had its effects and nothing waits to be published.
func (c counts) done(orders int) bool {
	return c.Orders == orders && c.Charged == orders && c.Shipped == orders && c.Unfinished == 0
}

// progress is how far the work has come, from 0 to 1.
func (c counts) progress(orders int) float64 {
	return float64(c.Orders+c.Charged+c.Shipped) / float64(3*orders)
}
