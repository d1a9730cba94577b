package uow

import (
	"context"
	"database/sql"
)

// Beginner opens transactions by one driver API. [SQL] and [SQLX] are built in; another driver
// is a type of about fifty lines.
type Beginner interface {
	// Validate reports a configuration fault, such as a nil database. It opens nothing.
	Validate() error
	// Begin opens a transaction. ctx bounds only the wait until it is open: a transaction that is
	// open does not end with ctx.
	Begin(ctx context.Context, opts sql.TxOptions) (Conn, error)
	// Adopt wraps a transaction that the caller owns, and refuses a type that is not the driver's.
	Adopt(tx any) (Conn, error)
	// Ping asks the database for a sign of life.
	Ping(ctx context.Context) error
}

// Conn is an open transaction as the stores use it. It is not safe for concurrent use.
type Conn interface {
	// Exec runs a statement and returns the number of rows affected.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Query runs a statement that returns rows. The caller closes them.
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	// Commit and Rollback end the transaction. When something else has ended it before, the error
	// is [ErrEnded].
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
	// Native is the driver's transaction, for [Tx].
	Native() any
}

// Rows are the result of a query, a subset of *sql.Rows.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}
