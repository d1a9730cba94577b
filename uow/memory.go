package uow

import (
	"context"
	"database/sql"
	"embed"
	"errors"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

// NewMemory makes a unit of work without a database, for unit tests of handlers together with the
// memory stores. Commit, roll back, savepoints and hooks behave as with a database; there is no
// transaction for [Tx] to give, so its error is [ErrWrongType], and [UnitOfWork.Join] refuses.
func NewMemory() *UnitOfWork { return New(memoryBeginner{}, memoryDialect) }

var memoryDialect = dialect.Dialect{
	Name:       "memory",
	SQL:        embed.FS{},
	Migrations: embed.FS{},
	Classify:   func(error) dialect.Class { return dialect.Other },
}

type memoryBeginner struct{}

func (memoryBeginner) Validate() error            { return nil }
func (memoryBeginner) Ping(context.Context) error { return nil }

func (memoryBeginner) Begin(ctx context.Context, _ sql.TxOptions) (Conn, error) {
	return &memoryConn{}, ctx.Err()
}

func (memoryBeginner) Adopt(any) (Conn, error) {
	return nil, errors.New("uow: a unit of work in memory cannot join a database's transaction")
}

// memoryConn takes savepoint statements, which need no work here: the memory stores undo by
// [AfterEnd]. Everything else is refused.
type memoryConn struct{ ended bool }

func (c *memoryConn) Native() any { return c }

func (c *memoryConn) Exec(context.Context, string, ...any) (int64, error) {
	if c.ended {
		return 0, ErrEnded
	}
	return 0, nil
}

func (c *memoryConn) Query(context.Context, string, ...any) (Rows, error) {
	return nil, errors.New("uow: a unit of work in memory runs no SQL")
}

func (c *memoryConn) Commit(context.Context) error   { return c.finish() }
func (c *memoryConn) Rollback(context.Context) error { return c.finish() }

func (c *memoryConn) finish() error {
	if c.ended {
		return ErrEnded
	}
	c.ended = true
	return nil
}
