package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

// UnitOfWork runs functions in transactions of one database. Stores are made on it, so they know
// whether a context carries a transaction of their own database or of another one.
type UnitOfWork struct {
	beginner  Beginner
	dialect   dialect.Dialect
	isolation sql.IsolationLevel
	fault     error
}

// New makes a unit of work over an open database. It opens nothing; faults in the arguments are
// reported, all at once, by [UnitOfWork.Validate], by router.New and by the first use.
func New(b Beginner, d dialect.Dialect) *UnitOfWork {
	w := &UnitOfWork{beginner: b, dialect: d}
	w.fault = w.validate()
	return w
}

// WithIsolation returns a unit of work on the same database whose transactions have the given
// level. Default: [sql.LevelDefault], the server's default. It is another unit of work than the
// original: stores, router and Do must be given the same one.
func (w *UnitOfWork) WithIsolation(level sql.IsolationLevel) *UnitOfWork {
	c := *w
	c.isolation = level
	c.fault = c.validate()
	return &c
}

// Dialect is the dialect that the unit of work was made with.
func (w *UnitOfWork) Dialect() dialect.Dialect { return w.dialect }

// Isolation is the level of its transactions.
func (w *UnitOfWork) Isolation() sql.IsolationLevel { return w.isolation }

// Validate reports every fault of the configuration at once. It opens nothing.
func (w *UnitOfWork) Validate() error {
	if w == nil {
		return errNoDatabase
	}
	return w.fault
}

var errNoDatabase = errors.New("uow: no database; pass uow.SQL(db) or uow.SQLX(db) to uow.New")

func (w *UnitOfWork) validate() error {
	if w.beginner == nil {
		return errNoDatabase
	}
	err := errors.Join(w.beginner.Validate(), w.dialect.Validate())
	if w.isolation < sql.LevelDefault || w.isolation > sql.LevelLinearizable {
		err = errors.Join(err, fmt.Errorf("uow: isolation level %d is unknown; use a level of database/sql", int(w.isolation)))
	}
	return err
}

// Ping asks the database for a sign of life.
func (w *UnitOfWork) Ping(ctx context.Context) error { return w.beginner.Ping(ctx) }

// Option changes one call of [UnitOfWork.Do].
type Option func(*options)

type options struct {
	retries   int
	isolation *sql.IsolationLevel
}

// Retry lets Do run its function again, up to n times more, each time in a fresh transaction,
// when it failed with a serialization failure, a deadlock or a busy database. The function must
// not keep anything from one run to the next. A nested Do does not retry: its transaction is lost.
func Retry(n int) Option { return func(o *options) { o.retries = n } }

// At sets the isolation level of this transaction. It has no effect on a nested Do.
func At(level sql.IsolationLevel) Option { return func(o *options) { o.isolation = &level } }
