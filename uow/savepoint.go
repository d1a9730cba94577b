package uow

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

var savepoints atomic.Int64

// savepoint calls fn between SAVEPOINT and RELEASE. On failure the transaction goes back to the
// savepoint, so what fn wrote is gone and the transaction stays usable, even on Postgres after a
// failed statement. When it cannot go back, nothing of the transaction may be kept any more.
func (t *tx) savepoint(ctx context.Context, fn func(context.Context) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	// The number is unique in the process, because a transaction may be joined while it carries
	// savepoints of ours already: of two with one name a rollback would find the inner one.
	name := fmt.Sprintf("uow_%d", savepoints.Add(1))
	if _, err := t.conn.Exec(ctx, "SAVEPOINT "+name); err != nil {
		return fmt.Errorf("uow: savepoint: %w", err)
	}
	mark := t.mark()

	returned := false
	defer func() {
		if !returned {
			_ = t.restore(ctx, name, mark)
		}
	}()
	err = fn(context.WithValue(ctx, contextKey{}, t))
	returned = true

	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		if _, err = t.conn.Exec(ctx, "RELEASE SAVEPOINT "+name); err == nil {
			return nil
		}
		err = fmt.Errorf("uow: release savepoint: %w", err)
	}
	if lost := t.restore(ctx, name, mark); lost != nil {
		return errors.Join(err, lost)
	}
	return err
}

// restore rolls back to the savepoint under a context of its own: the caller's may have ended.
func (t *tx) restore(ctx context.Context, name string, mark int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	defer t.end(mark, false)
	_, err := t.conn.Exec(ctx, "ROLLBACK TO SAVEPOINT "+name)
	if err == nil {
		_, err = t.conn.Exec(ctx, "RELEASE SAVEPOINT "+name) // else failed ones would pile up
	}
	if err != nil {
		t.broken = fmt.Errorf("%w: %w", ErrRollbackOnly, err)
		if t.joined {
			// The owner must not commit half of our work. When even this fails, the connection
			// is gone and the server rolls back.
			_ = t.conn.Rollback(ctx)
		}
		return t.broken
	}
	return nil
}
