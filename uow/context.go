package uow

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
)

// tx is one transaction in a context. Transactions of different databases nest by parent.
type tx struct {
	work   *UnitOfWork
	conn   Conn
	joined bool
	parent *tx
	done   atomic.Bool // a context that is kept longer carries nothing any more

	mu      sync.Mutex
	hooks   []func(committed bool)
	confirm func(context.Context) (bool, error)
	broken  error // a savepoint was lost: nothing of this transaction may be kept
}

type contextKey struct{}

func innermost(ctx context.Context) *tx {
	t, _ := ctx.Value(contextKey{}).(*tx)
	return t
}

// find gives the transaction of this unit of work's own database.
func (w *UnitOfWork) find(ctx context.Context) *tx {
	for t := innermost(ctx); t != nil; t = t.parent {
		if t.work == w {
			return t
		}
	}
	return nil
}

// Conn gives the transaction that ctx carries for this unit of work, for the stores' statements.
// Without one the error is [ErrNoTransaction]; a transaction of another unit of work does not count.
func (w *UnitOfWork) Conn(ctx context.Context) (Conn, error) {
	if t := w.find(ctx); t != nil {
		if t.done.Load() {
			return nil, ErrEnded
		}
		return t.conn, nil
	}
	if innermost(ctx) != nil {
		return nil, fmt.Errorf("%w of this database: the context carries one of another unit of work", ErrNoTransaction)
	}
	return nil, fmt.Errorf("%w; call this inside Do, or inside a handler behind the unit of work middleware", ErrNoTransaction)
}

// Detach returns ctx without any unit of work, for work that must not join one, such as a message
// that an in-process broker hands on together with its publisher's context.
func Detach(ctx context.Context) context.Context {
	if innermost(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, (*tx)(nil))
}

// Tx gives the driver's transaction that ctx carries: *sqlx.Tx or *sql.Tx, whichever the unit of
// work was opened with. Where units of work of several databases nest, it is the innermost one's.
// Do not commit it or roll it back: Do does.
func Tx[T any](ctx context.Context) (T, error) {
	var zero T
	t := innermost(ctx)
	if t == nil {
		return zero, fmt.Errorf("%w; call this inside Do, or inside a handler behind the unit of work middleware", ErrNoTransaction)
	}
	native := t.conn.Native()
	if want, ok := native.(T); ok {
		return want, nil
	}
	if extended, ok := native.(*sqlx.Tx); ok {
		if want, ok := any(extended.Tx).(T); ok {
			return want, nil
		}
	}
	return zero, fmt.Errorf("%w: asked for %T, carries %T; ask for that, or open the unit of work by the other one of uow.SQL and uow.SQLX", ErrWrongType, zero, native)
}

// AfterCommit calls fn once the transaction that ctx carries is committed, in the goroutine of Do
// and after Do has let go of it; not when it is rolled back, nor when the savepoint around this
// call is. In a joined transaction it returns [ErrJoined], without one [ErrNoTransaction].
func AfterCommit(ctx context.Context, fn func()) error {
	return innermost(ctx).afterEnd(func(committed bool) {
		if committed {
			fn()
		}
	})
}

// AfterEnd calls fn once, with true when the work around this call was committed and with false
// when it was rolled back, the latter already when only its savepoint was. It is for stores: it
// takes the transaction of this unit of work, where [AfterCommit] takes the innermost one. Errors
// as AfterCommit.
func (w *UnitOfWork) AfterEnd(ctx context.Context, fn func(committed bool)) error {
	return w.find(ctx).afterEnd(fn)
}

func (t *tx) afterEnd(fn func(committed bool)) error {
	switch {
	case t == nil:
		return ErrNoTransaction
	case t.joined:
		return ErrJoined
	case t.done.Load():
		return ErrEnded
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hooks = append(t.hooks, fn)
	return nil
}

// Confirm registers fn for the case that something inside the unit of work ended the transaction
// itself: Do then calls fn, with a context that carries no transaction, to learn whether the work
// was committed. Without it such an end is always an error. The last registration counts.
func Confirm(ctx context.Context, fn func(ctx context.Context) (committed bool, err error)) error {
	t := innermost(ctx)
	if t == nil {
		return ErrNoTransaction
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.confirm = fn
	return nil
}

// finish ends the transaction for whoever still has its context, and calls the hooks.
func (t *tx) finish(committed bool) {
	t.done.Store(true)
	t.end(0, committed)
}

// end calls the hooks that were registered from mark on, latest first, and forgets them. A hook
// that panics does not keep the others from running.
func (t *tx) end(mark int, committed bool) {
	t.mu.Lock()
	due := t.hooks[mark:]
	t.hooks = t.hooks[:mark:mark]
	t.mu.Unlock()
	call(due, committed)
}

func call(hooks []func(bool), committed bool) {
	if last := len(hooks) - 1; last >= 0 {
		defer call(hooks[:last], committed)
		hooks[last](committed)
	}
}

func (t *tx) mark() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.hooks)
}
