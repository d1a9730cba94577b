// Package inboxstore keeps the inbox: the rows that say which consumer has taken which message.
//
// [Store] keeps them in the database of a unit of work, in the handler's own transaction; [Memory]
// keeps them in the process, for unit tests; [Disabled] keeps none.
package inboxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// DefaultLockWait bounds how long a delivery waits for another one of the same message.
const DefaultLockWait = 5 * time.Second

// Store keeps inbox rows in a database. It is safe for concurrent use and holds no connection.
type Store struct {
	work     *uow.UnitOfWork
	sql      dialect.Queries
	lockWait time.Duration
	fault    error
}

// Option changes a store.
type Option func(*Store)

// LockWait bounds how long a delivery waits while another one of the same message is being
// handled. At least 1 ms; default [DefaultLockWait]. On SQLite the connection's busy timeout is
// the bound instead.
func LockWait(d time.Duration) Option { return func(s *Store) { s.lockWait = d } }

// New makes a store on the database of work. It opens nothing; a fault in the arguments is
// reported by [Store.Validate], by router.New and by the first use.
func New(work *uow.UnitOfWork, opts ...Option) *Store {
	s := &Store{work: work, lockWait: DefaultLockWait}
	for _, opt := range opts {
		opt(s)
	}
	if s.fault = work.Validate(); s.fault != nil {
		return s
	}
	if s.lockWait < time.Millisecond {
		s.fault = fmt.Errorf("inboxstore: LockWait is %s; use at least 1ms", s.lockWait)
	}
	var err error
	if s.sql, err = work.Dialect().Queries("inbox.sql"); err == nil {
		err = s.sql.Require("begin", "find", "exists", "revive", "bury", "purge", "version", "isolation", "probe")
	}
	s.fault = errors.Join(s.fault, err)
	return s
}

// Validate reports every fault of the configuration at once. It opens nothing.
func (s *Store) Validate() error {
	if s == nil {
		return errors.New("inboxstore: the store is nil; pass inboxstore.New(work)")
	}
	return s.fault
}

// UnitOfWork is the unit of work that the store was made on.
func (s *Store) UnitOfWork() *uow.UnitOfWork {
	if s == nil {
		return nil
	}
	return s.work
}

// Check asks the database whether the tables are there, at the version of this release, whether the
// isolation level of its transactions is one that the inbox has been proved at, and, on SQLite,
// whether a connection waits for its turn to write.
func (s *Store) Check(ctx context.Context) error {
	if s.fault != nil {
		return s.fault
	}
	if err := s.work.CheckSchema(ctx, s.sql["version"], s.sql["probe"]); err != nil {
		return fmt.Errorf("inboxstore: %w", err)
	}
	var level string
	patience := 1
	err := s.own(ctx, func(ctx context.Context) error {
		_, err := s.row(ctx, "isolation", nil, &level)
		if _, hasOne := s.sql["patience"]; hasOne && err == nil {
			_, err = s.row(ctx, "patience", nil, &patience)
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("inboxstore: the isolation level could not be read: %w", err)
	case patience <= 0:
		return errors.New("inboxstore: SQLite's busy_timeout is 0, so handlers and the forwarder fail on each other; open it with ?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	case !slices.Contains([]string{"read uncommitted", "read committed", "repeatable read", "serializable"}, level):
		return fmt.Errorf("inboxstore: isolation level %q is unknown; use uow.WithIsolation", inbox.Clean(level, 32))
	}
	return nil
}

// conn gives the transaction of the context.
func (s *Store) conn(ctx context.Context) (uow.Conn, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	return s.work.Conn(ctx)
}

// row runs a statement that returns at most one row and scans it.
func (s *Store) row(ctx context.Context, name string, args []any, dest ...any) (found bool, err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return false, err
	}
	rows, err := conn.Query(ctx, s.sql[name], args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if found = rows.Next(); found {
		if err := rows.Scan(dest...); err != nil {
			return false, err
		}
		// Reading to the end lets the statement finish before the next one starts.
		for rows.Next() {
			continue
		}
	}
	return found, rows.Err()
}

// exec runs a statement that returns no rows.
func (s *Store) exec(ctx context.Context, name string, args ...any) (int64, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return 0, err
	}
	return conn.Exec(ctx, s.sql[name], args...)
}

// own runs fn in a transaction of its own, whatever the context carries.
func (s *Store) own(ctx context.Context, fn func(ctx context.Context) error) error {
	if s.fault != nil {
		return s.fault
	}
	return s.work.Do(uow.Detach(ctx), fn, uow.Retry(5))
}

func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func lockBound(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }
