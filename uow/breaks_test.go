package uow_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// A16: a unit of work that fails takes everything back, whatever was joined inside it.
func TestA16_FailedJoinInsideAFailedPart(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`CREATE TABLE effects (name text)`)
	require.NoError(t, err)
	work := uow.New(uow.SQL(db), dialect.SQLite)
	failed := errors.New("failed")
	half := func(ctx context.Context) error {
		tx, err := uow.Tx[*sql.Tx](ctx)
		require.NoError(t, err)
		_, err = tx.Exec(`INSERT INTO effects VALUES ('half')`)
		require.NoError(t, err)
		require.ErrorIs(t, work.Join(ctx, tx, func(context.Context) error { return failed }), failed)
		return failed
	}
	require.NoError(t, work.Do(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, work.Do(ctx, half), failed)
		return nil
	}))
	tx, err := db.Begin()
	require.NoError(t, err)
	require.ErrorIs(t, work.Join(t.Context(), tx, half), failed)
	require.NoError(t, tx.Commit())
	var n int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM effects`).Scan(&n))
	require.Zero(t, n)
}

// C9: a hook that panics does not keep the others from running.
func TestC9_HookThatPanics(t *testing.T) {
	called := 0
	require.PanicsWithValue(t, "hook", func() {
		_ = uow.NewMemory().Do(t.Context(), func(ctx context.Context) error {
			require.NoError(t, uow.AfterCommit(ctx, func() { called++ }))
			require.NoError(t, uow.AfterCommit(ctx, func() { panic("hook") }))
			return uow.AfterCommit(ctx, func() { called++ })
		})
	})
	require.Equal(t, 2, called)
}

// A context that is kept longer than its unit of work carries nothing any more.
func TestA3_ContextKeptAfterTheEnd(t *testing.T) {
	work := uow.NewMemory()
	var kept context.Context
	require.NoError(t, work.Do(t.Context(), func(ctx context.Context) error { kept = ctx; return nil }))
	_, err := work.Conn(kept)
	require.ErrorIs(t, err, uow.ErrEnded)
	require.ErrorIs(t, uow.AfterCommit(kept, func() {}), uow.ErrEnded)
}
