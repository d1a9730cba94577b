package uow_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// What every unit of work promises is in tests/storetest; here is what concerns database/sql and
// sqlx, and the arguments.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errPlanned = errors.New("planned failure")

func open(t *testing.T) *sqlx.DB {
	db, err := sqlx.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, db.Stats().InUse)
		require.NoError(t, db.Close())
	})
	_, err = db.Exec(`CREATE TABLE effects (name text)`)
	require.NoError(t, err)
	return db
}

func count(t *testing.T, db *sqlx.DB) (n int) {
	require.NoError(t, db.Get(&n, `SELECT count(*) FROM effects`))
	return n
}

func insert(ctx context.Context) error {
	tx, err := uow.Tx[*sql.Tx](ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO effects VALUES ('one')`)
	return err
}

func TestA16_TxGivesTheTypeItIsAskedFor(t *testing.T) {
	db := open(t)
	require.NoError(t, uow.New(uow.SQLX(db), dialect.SQLite).Do(t.Context(), func(ctx context.Context) error {
		extended, err := uow.Tx[*sqlx.Tx](ctx)
		require.NoError(t, err)
		plain, err := uow.Tx[*sql.Tx](ctx)
		require.NoError(t, err)
		require.Same(t, extended.Tx, plain)
		_, err = extended.NamedExec(`INSERT INTO effects VALUES (:name)`, map[string]any{"name": "named"})
		return err // the handler's own sqlx works in full, with the driver's kind of placeholders
	}))
	require.Equal(t, 1, count(t, db))
	require.NoError(t, uow.New(uow.SQL(db.DB), dialect.SQLite).Do(t.Context(), func(ctx context.Context) error {
		_, err := uow.Tx[*sqlx.Tx](ctx)
		require.ErrorIs(t, err, uow.ErrWrongType)
		require.ErrorContains(t, err, "asked for *sqlx.Tx, carries *sql.Tx")
		return nil
	}))
	_, err := uow.Tx[*sql.Tx](t.Context())
	require.ErrorIs(t, err, uow.ErrNoTransaction)
}

// owned is a transaction that its owner ends.
type owned interface {
	Commit() error
	Rollback() error
}

func TestA16_JoinOfTheCallersTransaction(t *testing.T) {
	db := open(t)
	work := uow.New(uow.SQLX(db), dialect.SQLite)
	begin := map[string]func() (native any, end owned){
		"*sql.Tx": func() (any, owned) {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			return tx, tx
		},
		"*sqlx.Tx": func() (any, owned) {
			tx, err := db.BeginTxx(t.Context(), nil)
			require.NoError(t, err)
			return tx, tx
		},
	}
	for name, begin := range begin {
		t.Run(name, func(t *testing.T) {
			before := count(t, db)
			native, end := begin()
			require.NoError(t, work.Join(t.Context(), native, insert))
			require.NoError(t, end.Rollback(), "it has not been ended for its owner")
			require.Equal(t, before, count(t, db))

			native, end = begin()
			require.NoError(t, work.Join(t.Context(), native, insert))
			require.ErrorIs(t, work.Join(t.Context(), native, func(ctx context.Context) error {
				return errors.Join(insert(ctx), errPlanned)
			}), errPlanned)
			require.NoError(t, end.Commit())
			require.Equal(t, before+1, count(t, db))
			require.Error(t, work.Join(t.Context(), native, insert), "it has ended")
		})
	}
	for _, foreign := range []any{(*sql.Tx)(nil), (*sqlx.Tx)(nil), db, nil} {
		require.ErrorIs(t, work.Join(t.Context(), foreign, insert), uow.ErrWrongType)
	}
}

// C30 (golang/go#22976): whoever waits for a connection must neither get nor keep one once its
// context has ended.
func TestA5_ContextThatEndsWhileWaitingForAConnection(t *testing.T) {
	db := open(t)
	db.SetMaxOpenConns(1)
	work := uow.New(uow.SQL(db.DB), dialect.SQLite)
	require.NoError(t, work.Do(t.Context(), func(ctx context.Context) error {
		waiting, cancel := context.WithCancel(uow.Detach(ctx))
		result := make(chan error, 1)
		go func() { result <- work.Do(waiting, insert) }()
		require.Eventually(t, func() bool { return db.Stats().WaitCount > 0 }, 5*time.Second, time.Millisecond)
		cancel()
		err := <-result
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, dialect.Other, work.Class(err))
		return insert(ctx)
	}))
	require.Equal(t, 1, count(t, db))
}

func TestD4_FaultsAreReportedAtOnce(t *testing.T) {
	err := uow.New(uow.SQLX(nil), dialect.Dialect{}).WithIsolation(99).Validate()
	for _, part := range []string{"*sqlx.DB", "unknown dialect", "isolation level 99"} {
		require.ErrorContains(t, err, part)
	}
	for _, work := range []*uow.UnitOfWork{
		nil, uow.New(nil, dialect.SQLite), uow.New(uow.SQL(nil), dialect.SQLite), uow.New(uow.SQLX(&sqlx.DB{}), dialect.SQLite),
	} {
		require.Error(t, work.Validate())
		require.Error(t, work.Do(t.Context(), func(context.Context) error { t.Error("ran"); return nil }))
		require.Error(t, work.Join(t.Context(), &sql.Tx{}, func(context.Context) error { t.Error("ran"); return nil }))
	}
	require.NoError(t, uow.NewMemory().WithIsolation(sql.LevelSerializable).Validate())
}

func TestA8_A19_ClassOfAnError(t *testing.T) {
	work := uow.NewMemory()
	lost := &uow.OpError{Op: "commit", Err: driver.ErrBadConn, Work: work}
	require.ErrorIs(t, lost, uow.ErrOutcomeUnknown)
	require.ErrorIs(t, lost, driver.ErrBadConn)
	require.Equal(t, dialect.Infrastructure, work.Class(lost))
	require.NotErrorIs(t, &uow.OpError{Op: "rollback", Err: driver.ErrBadConn}, uow.ErrOutcomeUnknown, "nothing was committed")
	require.NotErrorIs(t, &uow.OpError{Op: "commit", Err: errPlanned}, uow.ErrOutcomeUnknown, "the server has answered")
	require.Equal(t, dialect.Other, work.Class(&uow.OpError{Op: "commit", Err: errPlanned}))
	require.Equal(t, dialect.Other, uow.NewMemory().Class(lost), "another database's")
	require.Equal(t, dialect.Other, work.Class(io.EOF), "a function's own network error")
	require.Equal(t, dialect.Other, work.Class(nil))
}
