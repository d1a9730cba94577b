package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// C27: service A calls service B, and both use a unit of work.
func nested(t *testing.T, b *bench) {
	outer := func(inner func(ctx context.Context) error, result error) func() error {
		return func() error {
			return b.work.Do(t.Context(), func(ctx context.Context) error {
				require.NoError(t, b.effect(ctx, "before"))
				if err := inner(ctx); err != nil {
					return err
				}
				require.NoError(t, b.effect(ctx, "after"))
				return result
			})
		}
	}
	b.requireRun(t, "inner ok", outer(func(ctx context.Context) error {
		return b.work.Do(ctx, b.leave("inner", nil))
	}, nil), nil, "before", "inner", "after")
	b.requireRun(t, "inner ok, outer fails", outer(func(ctx context.Context) error {
		return b.work.Do(ctx, b.leave("inner", nil))
	}, errPlanned), errPlanned)
	b.requireRun(t, "inner error swallowed", outer(func(ctx context.Context) error {
		require.Equal(t, errPlanned, b.work.Do(ctx, b.leave("inner", errPlanned)))
		return nil
	}, nil), nil, "before", "after")
	b.requireRun(t, "inner error returned", outer(func(ctx context.Context) error {
		return b.work.Do(ctx, b.leave("inner", errPlanned))
	}, nil), errPlanned)
	b.requireRun(t, "inner panic recovered", outer(func(ctx context.Context) error {
		require.PanicsWithValue(t, "planned", func() {
			_ = b.work.Do(ctx, func(ctx context.Context) error {
				require.NoError(t, b.effect(ctx, "inner"))
				panic("planned")
			})
		})
		return nil
	}, nil), nil, "before", "after")
	b.requireRun(t, "inner context ends", outer(func(ctx context.Context) error {
		inner, cancel := context.WithCancel(ctx)
		err := b.work.Do(inner, func(ctx context.Context) error {
			require.NoError(t, b.effect(ctx, "inner"))
			cancel()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		return nil
	}, nil), nil, "before", "after")
	b.requireRun(t, "innermost undone", outer(func(ctx context.Context) error {
		return b.work.Do(ctx, func(ctx context.Context) error {
			require.Error(t, b.work.Do(ctx, b.leave("innermost", errPlanned)))
			require.NoError(t, b.work.Do(ctx, b.leave("sibling", nil)))
			return b.effect(ctx, "inner")
		})
	}, nil), nil, "before", "sibling", "inner", "after")
	b.requireRun(t, "innermost kept, inner undone", outer(func(ctx context.Context) error {
		require.Error(t, b.work.Do(ctx, func(ctx context.Context) error {
			require.NoError(t, b.work.Do(ctx, b.leave("innermost", nil)))
			return errPlanned
		}))
		return nil
	}, nil), nil, "before", "after")
}

// requireRun runs fn and checks its error and what it leaves, from an empty table on.
func (b *bench) requireRun(t *testing.T, name string, fn func() error, want error, effects ...string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if b.SQL {
			b.do(t, `DELETE FROM storetest_effects`)
		} else {
			b.done = nil
		}
		if err := fn(); want != nil {
			require.ErrorIs(t, err, want)
		} else {
			require.NoError(t, err)
		}
		b.requireEffects(t, effects...)
	})
}

func nestedStatementFails(t *testing.T, b *bench) {
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		require.NoError(t, b.effect(ctx, "before"))
		require.Error(t, b.work.Do(ctx, func(ctx context.Context) error {
			require.NoError(t, b.effect(ctx, "inner"))
			return b.exec(ctx, `INSERT INTO storetest_nowhere VALUES (1)`)
		}))
		return b.effect(ctx, "after") // usable, also where a failed statement spoils a transaction
	}))
	b.requireEffects(t, "before", "after")
}

// mark sets a savepoint of the application's own. loseSavepoint releases it, and with it every later
// one, so that the roll-back to those fails.
func (b *bench) mark(ctx context.Context) error { return b.exec(ctx, `SAVEPOINT application`) }

func (b *bench) loseSavepoint(ctx context.Context) error {
	return b.exec(ctx, `RELEASE SAVEPOINT application`)
}

func lostSavepoint(t *testing.T, b *bench) {
	err := b.work.Do(t.Context(), func(ctx context.Context) error {
		require.NoError(t, b.effect(ctx, "before"))
		require.NoError(t, b.mark(ctx))
		inner := b.work.Do(ctx, func(ctx context.Context) error {
			require.NoError(t, b.effect(ctx, "inner"))
			require.NoError(t, b.loseSavepoint(ctx))
			return errPlanned
		})
		require.ErrorIs(t, inner, errPlanned)
		require.ErrorIs(t, inner, uow.ErrRollbackOnly)
		return nil // swallowed: but the inner effect cannot be taken back alone
	})
	require.ErrorIs(t, err, uow.ErrRollbackOnly)
	b.requireEffects(t)
}

// joined calls fn in a transaction of an owner's, and then tells the owner what to return.
func (b *bench) joined(t *testing.T, result error, fn func(ctx context.Context, join func(func(context.Context) error) error)) error {
	return b.work.Do(t.Context(), func(ctx context.Context) error {
		conn, err := b.work.Conn(ctx)
		require.NoError(t, err)
		fn(ctx, func(inner func(context.Context) error) error {
			return b.work.Join(uow.Detach(ctx), conn.Native(), inner)
		})
		return result
	})
}

func joinNeverCommits(t *testing.T, b *bench) {
	work := func(ctx context.Context, join func(func(context.Context) error) error) {
		require.NoError(t, join(b.leave("joined", nil)))
		if !b.SingleConnection && !b.SingleWriter {
			b.requireEffects(t)
		}
		require.NoError(t, b.effect(ctx, "owner"), "the transaction is still the owner's")
	}
	require.ErrorIs(t, b.joined(t, errPlanned, work), errPlanned)
	b.requireEffects(t)
	require.NoError(t, b.joined(t, nil, work))
	b.requireEffects(t, "owner", "joined")
}

func joinUndoesItsOwn(t *testing.T, b *bench) {
	require.NoError(t, b.joined(t, nil, func(ctx context.Context, join func(func(context.Context) error) error) {
		require.NoError(t, b.effect(ctx, "owner"))
		require.Equal(t, errPlanned, join(b.leave("failed", errPlanned)))
		require.Panics(t, func() {
			_ = join(func(ctx context.Context) error {
				require.NoError(t, b.effect(ctx, "panicked"))
				panic("planned")
			})
		})
		require.NoError(t, join(func(ctx context.Context) error {
			require.Error(t, b.work.Do(ctx, b.leave("nested", errPlanned)), "a Do in a joined transaction is in it")
			return b.effect(ctx, "joined")
		}))
	}))
	b.requireEffects(t, "owner", "joined")
}

// The owner may commit whatever we say: what cannot be taken back alone must go with everything.
func lostJoin(t *testing.T, b *bench) {
	err := b.joined(t, nil, func(ctx context.Context, join func(func(context.Context) error) error) {
		require.NoError(t, b.effect(ctx, "owner"))
		require.NoError(t, b.mark(ctx))
		require.ErrorIs(t, join(func(ctx context.Context) error {
			require.NoError(t, b.effect(ctx, "joined"))
			require.NoError(t, b.loseSavepoint(ctx))
			return errPlanned
		}), uow.ErrRollbackOnly)
	})
	require.ErrorIs(t, err, uow.ErrEnded)
	b.requireEffects(t)
}

func joinRefuses(t *testing.T, b *bench) {
	for _, foreign := range []any{nil, 42, "BEGIN", struct{}{}} {
		require.Error(t, b.work.Join(t.Context(), foreign, func(context.Context) error {
			t.Error("there is nothing to join")
			return nil
		}))
	}
}

// C29: the transaction of one database does not serve another one.
func twoDatabases(t *testing.T, a, b *bench) {
	require.NoError(t, a.work.Do(t.Context(), func(ctx context.Context) error {
		_, err := b.work.Conn(ctx)
		require.ErrorIs(t, err, uow.ErrNoTransaction)
		require.ErrorContains(t, err, "another unit of work")
		require.ErrorIs(t, b.work.AfterEnd(ctx, func(bool) {}), uow.ErrNoTransaction)

		require.NoError(t, a.effect(ctx, "a"))
		require.ErrorIs(t, b.work.Do(ctx, func(ctx context.Context) error {
			require.NoError(t, b.effect(ctx, "b undone"))
			require.NoError(t, a.effect(ctx, "a inside b"))
			return errPlanned
		}), errPlanned)
		require.NoError(t, b.work.Do(ctx, func(ctx context.Context) error {
			require.NoError(t, b.effect(ctx, "b"))
			require.ErrorIs(t, a.work.Do(ctx, a.leave("a nested, undone", errPlanned)), errPlanned)
			return nil
		}))
		require.ErrorIs(t, b.work.Do(ctx, func(ctx context.Context) error {
			conn, err := b.work.Conn(ctx)
			require.NoError(t, err)
			require.NoError(t, conn.Rollback(ctx))
			return uow.Confirm(ctx, func(ctx context.Context) (bool, error) {
				_, err := a.work.Conn(ctx)
				require.ErrorIs(t, err, uow.ErrNoTransaction, "the question is outside of every transaction")
				return false, nil
			})
		}), uow.ErrEnded)
		b.requireEffects(t, "b") // committed, whatever becomes of a
		return nil
	}))
	a.requireEffects(t, "a", "a inside b")
	b.requireEffects(t, "b")
}
