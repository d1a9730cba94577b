package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

// endTimeout bounds a rollback, as far as the driver heeds a context there (database/sql does not),
// and the question whether a transaction was committed. Both run although the caller's context may
// have ended.
const endTimeout = 5 * time.Second

// Do calls fn in a transaction: the one of this unit of work that ctx already carries, behind a
// savepoint, or else one of its own, which it commits when fn returns nil while ctx has not ended.
// Otherwise it rolls back, also when ctx has been cancelled, and returns the cause; a panic and
// runtime.Goexit go on after the rollback.
func (w *UnitOfWork) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	if err := w.Validate(); err != nil {
		return err
	}
	if t := w.find(ctx); t != nil {
		return because(ctx, t.savepoint(ctx, fn))
	}
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	err := w.once(ctx, fn, o)
	for try := 0; try < o.retries && w.Class(err) == dialect.Retryable; try++ {
		if !pause(ctx, try) {
			break
		}
		err = w.once(ctx, fn, o)
	}
	return because(ctx, err)
}

// because adds the end of ctx to an error: a driver whose statement is ended by its context may
// report no more than a bad connection.
func because(ctx context.Context, err error) error {
	if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
		return errors.Join(ended, err)
	}
	return err
}

// Join calls fn in a transaction that the caller owns: a *sql.Tx or *sqlx.Tx. The work is a
// savepoint, rolled back to when fn fails and never committed here.
func (w *UnitOfWork) Join(ctx context.Context, native any, fn func(ctx context.Context) error) error {
	if err := w.Validate(); err != nil {
		return err
	}
	conn, err := w.beginner.Adopt(native)
	if err != nil {
		return err
	}
	t := &tx{work: w, conn: conn, joined: true, parent: innermost(ctx)}
	return because(ctx, t.savepoint(context.WithValue(ctx, contextKey{}, t), fn))
}

// errUnfinished stands for the result of a function that did not return.
var errUnfinished = errors.New("uow: the function panicked or ended its goroutine")

// once runs fn in one transaction of its own. There is no recover: the deferred roll-back runs
// while a panic or Goexit passes through, and the stack trace stays the one of the fault.
func (w *UnitOfWork) once(ctx context.Context, fn func(context.Context) error, o options) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	level := w.isolation
	if o.isolation != nil {
		level = *o.isolation
	}
	conn, err := w.beginner.Begin(ctx, sql.TxOptions{Isolation: level})
	if err != nil {
		if errors.Is(err, ctx.Err()) {
			return err
		}
		return &OpError{Op: "begin", Err: err, Work: w}
	}
	t := &tx{work: w, conn: conn, parent: innermost(ctx)}

	returned := false
	defer func() {
		if !returned {
			_ = t.abort(ctx, errUnfinished) // the panic is the fault that counts
		}
	}()
	err = fn(context.WithValue(ctx, contextKey{}, t))
	returned = true

	if err == nil {
		err = t.broken
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return t.abort(ctx, err)
	}
	return t.commit(ctx)
}

func (t *tx) commit(ctx context.Context) error {
	switch err := t.conn.Commit(context.WithoutCancel(ctx)); {
	case err == nil:
		t.finish(true)
		return nil
	case errors.Is(err, ErrEnded):
		return t.settle(ctx, nil)
	default:
		t.finish(false)
		return &OpError{Op: "commit", Err: err, Work: t.work}
	}
}

func (t *tx) abort(ctx context.Context, cause error) error {
	err := t.rollback(ctx)
	if errors.Is(err, ErrEnded) {
		return t.settle(ctx, cause)
	}
	t.finish(false)
	if err != nil {
		return errors.Join(cause, &OpError{Op: "rollback", Err: err, Work: t.work})
	}
	return cause
}

func (t *tx) rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return t.conn.Rollback(ctx)
}

// settle finds out what became of a transaction that was ended behind our back. cause is what fn
// returned.
func (t *tx) settle(ctx context.Context, cause error) error {
	if t.confirm == nil {
		t.finish(false)
		return errors.Join(cause, ErrEnded)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(Detach(ctx)), endTimeout)
	defer cancel()
	committed, err := t.confirm(ctx)
	t.finish(committed && err == nil)
	switch {
	case err != nil:
		return errors.Join(cause, ErrEnded, err)
	case committed:
		return cause
	}
	return errors.Join(cause, fmt.Errorf("%w (it was rolled back)", ErrEnded))
}

// pause waits before another try: 10 ms doubling to 1 s, each taken at random from the upper half,
// so that two transactions that met once do not meet again in step.
func pause(ctx context.Context, try int) bool {
	delay := min(10*time.Millisecond<<min(try, 10), time.Second)
	timer := time.NewTimer(delay/2 + rand.N(delay/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
