package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// SQL opens units of work on db, which the caller opens and closes. [Tx] gives *sql.Tx.
func SQL(db *sql.DB) Beginner {
	if db == nil {
		return stdBeginner{name: "*sql.DB"}
	}
	return stdBeginner{name: "*sql.DB", db: db, begin: func(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, any, error) {
		tx, err := db.BeginTx(ctx, opts)
		return tx, tx, err
	}}
}

// SQLX opens units of work on db, which the caller opens and closes. [Tx] gives *sqlx.Tx, and
// *sql.Tx as well.
func SQLX(db *sqlx.DB) Beginner {
	if db == nil || db.DB == nil {
		return stdBeginner{name: "*sqlx.DB"}
	}
	return stdBeginner{name: "*sqlx.DB", db: db.DB, begin: func(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, any, error) {
		tx, err := db.BeginTxx(ctx, opts)
		if err != nil {
			return nil, nil, err
		}
		return tx.Tx, tx, nil
	}}
}

type stdBeginner struct {
	name  string
	db    *sql.DB
	begin func(context.Context, *sql.TxOptions) (tx *sql.Tx, native any, err error)
}

func (b stdBeginner) Validate() error {
	if b.db == nil {
		return fmt.Errorf("uow: the database is nil; pass an open %s", b.name)
	}
	return nil
}

func (b stdBeginner) Ping(ctx context.Context) error { return b.db.PingContext(ctx) }

// Begin hands database/sql a context that follows ctx only until the transaction is open. With
// ctx itself, database/sql would roll back behind our back when ctx ends, and a commit that comes
// a moment later would report a transaction that "has already been committed or rolled back"
// instead of the cancellation.
func (b stdBeginner) Begin(ctx context.Context, opts sql.TxOptions) (Conn, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, cancel)
	tx, native, err := b.begin(own, &opts)
	if err == nil && !unlink() {
		err = errors.Join(ctx.Err(), ignoreEnded(tx.Rollback()))
	}
	if err != nil {
		unlink()
		cancel()
		if ended := ctx.Err(); ended != nil {
			return nil, ended
		}
		return nil, err
	}
	return &stdConn{tx: tx, native: native, release: cancel}, nil
}

func (b stdBeginner) Adopt(tx any) (Conn, error) {
	switch tx := tx.(type) {
	case *sql.Tx:
		if tx != nil {
			return &stdConn{tx: tx, native: tx, release: func() {}}, nil
		}
	case *sqlx.Tx:
		if tx != nil {
			return &stdConn{tx: tx.Tx, native: tx, release: func() {}}, nil
		}
	}
	return nil, fmt.Errorf("%w: cannot join %T; pass a *sql.Tx or *sqlx.Tx that is open", ErrWrongType, tx)
}

type stdConn struct {
	tx      *sql.Tx
	native  any
	release context.CancelFunc
}

func (c *stdConn) Native() any { return c.native }

func (c *stdConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := c.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, mapEnded(err)
	}
	return res.RowsAffected()
}

func (c *stdConn) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := c.tx.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller reads them
	if err != nil {
		return nil, mapEnded(err)
	}
	return rows, nil
}

func (c *stdConn) Commit(context.Context) error {
	defer c.release()
	return mapEnded(c.tx.Commit())
}

func (c *stdConn) Rollback(context.Context) error {
	defer c.release()
	return mapEnded(c.tx.Rollback())
}

func mapEnded(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return err
}

func ignoreEnded(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}
