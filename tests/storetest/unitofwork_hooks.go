package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

func afterCommit(t *testing.T, b *bench) {
	var order []string
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		require.NoError(t, uow.AfterCommit(ctx, func() {
			order = append(order, "hook")
			// Do has let go of the connection: even a pool of one has it free.
			b.requireEffects(t, "m")
		}))
		require.NoError(t, b.work.Do(ctx, func(ctx context.Context) error {
			return uow.AfterCommit(ctx, func() { order = append(order, "hook of the inner one") })
		}))
		order = append(order, "function")
		return b.effect(ctx, "m")
	}))
	require.Equal(t, []string{"function", "hook of the inner one", "hook"}, order)
}

func afterRollback(t *testing.T, b *bench) {
	var ended []bool
	register := func(ctx context.Context) {
		require.NoError(t, uow.AfterCommit(ctx, func() { t.Error("it was rolled back") }))
		require.NoError(t, b.work.AfterEnd(ctx, func(committed bool) { ended = append(ended, committed) }))
	}
	_ = b.work.Do(t.Context(), func(ctx context.Context) error { register(ctx); return errPlanned })
	require.Equal(t, []bool{false}, ended)
	require.Panics(t, func() {
		_ = b.work.Do(t.Context(), func(ctx context.Context) error { register(ctx); panic("planned") })
	})
	require.Equal(t, []bool{false, false}, ended)
	ctx, cancel := context.WithCancel(t.Context())
	_ = b.work.Do(ctx, func(ctx context.Context) error { register(ctx); cancel(); return nil })
	require.Equal(t, []bool{false, false, false}, ended)
}

func afterSavepoint(t *testing.T, b *bench) {
	var ended []string
	note := func(ctx context.Context, name string) {
		require.NoError(t, b.work.AfterEnd(ctx, func(committed bool) {
			if committed {
				name += " committed"
			}
			ended = append(ended, name)
		}))
	}
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		note(ctx, "before")
		require.Error(t, b.work.Do(ctx, func(ctx context.Context) error {
			note(ctx, "undone")
			require.NoError(t, b.work.Do(ctx, func(ctx context.Context) error { note(ctx, "undone with it"); return nil }))
			return errPlanned
		}))
		require.Equal(t, []string{"undone with it", "undone"}, ended, "told at once: what it did is gone already")
		require.NoError(t, b.work.Do(ctx, func(ctx context.Context) error { note(ctx, "inner"); return nil }))
		note(ctx, "after")
		return nil
	}))
	require.Equal(t, []string{"undone with it", "undone", "after committed", "inner committed", "before committed"}, ended)
}

func afterNothing(t *testing.T, b *bench) {
	never := func() { t.Error("nobody can know when") }
	require.ErrorIs(t, uow.AfterCommit(t.Context(), never), uow.ErrNoTransaction)
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, uow.AfterCommit(uow.Detach(ctx), never), uow.ErrNoTransaction)
		return nil
	}))
	if !b.SQL {
		return
	}
	require.NoError(t, b.joined(t, nil, func(_ context.Context, join func(func(context.Context) error) error) {
		require.NoError(t, join(func(ctx context.Context) error {
			require.ErrorIs(t, uow.AfterCommit(ctx, never), uow.ErrJoined)
			return nil
		}))
	}))
}
