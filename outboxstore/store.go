// Package outboxstore keeps the outbox: messages that are committed together with the work that
// they report, and published afterwards.
//
// [Store] keeps them in the database of a unit of work, [Memory] in the process, for unit tests.
// [Store.Publisher] is a drop-in message.Publisher that stages into the unit of work of the
// message's context; [Store.Append] does the same and says what became of each message.
// [Forwarder] leases rows, publishes them outside any transaction, and writes the outcome back
// under the lease's receipt: at least once, in order for rows of one ordering key.
package outboxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// Store keeps outbox rows in a database. It is safe for concurrent use and holds no connection.
// Use one Store a process and database: a commit wakes the forwarders of the Store that staged.
type Store struct {
	work   *uow.UnitOfWork
	sql    dialect.Queries
	limits limits
	fault  error
	wake   wake
	scan   scan
}

// New makes a store on the database of work. It opens nothing; a fault in the arguments is
// reported by [Store.Validate], by router.New and by the first use.
func New(work *uow.UnitOfWork, opts ...Option) *Store {
	s := &Store{work: work, limits: defaultLimits, wake: newWake()}
	for _, opt := range opts {
		opt(&s.limits)
	}
	if s.fault = work.Validate(); s.fault != nil {
		return s
	}
	var err error
	if s.sql, err = work.Dialect().Queries("outbox.sql"); err == nil {
		// "reserve" may be missing: a database with a single writer needs no order of inserts.
		err = s.sql.Require("append", "find", "claim", "complete", "remove", "release", "renew", "reject",
			"purge", "stats", "list", "requeue", "discard", "version", "probe")
	}
	s.fault = errors.Join(s.limits.validate(), err)
	return s
}

// Validate reports every fault of the configuration at once. It opens nothing.
func (s *Store) Validate() error {
	if s == nil {
		return errors.New("outboxstore: the store is nil; pass outboxstore.New(work)")
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

// Wake is signalled when a transaction that appended here has been committed by this process. It
// holds one signal, so a forwarder that is busy misses none.
func (s *Store) Wake() <-chan struct{} { return s.wake }

// Check asks the database whether the tables are there, at the version of this release.
func (s *Store) Check(ctx context.Context) error {
	if s.fault != nil {
		return s.fault
	}
	if err := s.work.CheckSchema(ctx, s.sql["version"], s.sql["probe"]); err != nil {
		return fmt.Errorf("outboxstore: %w", err)
	}
	return nil
}

type scanFunc func(dest ...any) error

// rows runs a statement in the transaction of the context and calls each for every row. It reads
// to the end, so that the statement has finished before the next one starts.
func (s *Store) rows(ctx context.Context, name string, args []any, each func(scanFunc) error) (err error) {
	if s.fault != nil {
		return s.fault
	}
	conn, err := s.work.Conn(ctx)
	if err != nil {
		return err
	}
	rows, err := conn.Query(ctx, s.sql[name], args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var first error
	for rows.Next() {
		if first == nil {
			first = each(rows.Scan)
		}
	}
	return errors.Join(first, rows.Err())
}

// own runs fn in a short transaction of its own, whatever the context carries.
func (s *Store) own(ctx context.Context, fn func(ctx context.Context) error, opts ...uow.Option) error {
	if s.fault != nil {
		return s.fault
	}
	return s.work.Do(uow.Detach(ctx), fn, append(opts, uow.Retry(ownRetries))...)
}

const (
	// ownRetries bounds how often a transaction of the store's own runs anew after a deadlock, a
	// serialization failure or a busy database.
	ownRetries = 5
	// settleTimeout bounds a write that runs to its end although the caller's context has ended.
	settleTimeout = 10 * time.Second
)

// settle is own for writes that must not be lost to a cancellation: what was published is
// published, and a lease that is given back spares the next forwarder a wait.
func (s *Store) settle(ctx context.Context, fn func(ctx context.Context) error, opts ...uow.Option) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return s.own(ctx, fn, opts...)
}
