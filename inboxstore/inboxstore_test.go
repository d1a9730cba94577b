package inboxstore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/migrate"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// What every store promises is in tests/storetest; here is what it leaves open.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *sql.DB {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

var key = inbox.Key{Consumer: "c", MessageID: "m"}

// A6: the bound holds to the second, and a context that ends sooner ends the wait.
func TestA6_A17_MemoryWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := uow.NewMemory()
		store := inboxstore.NewMemory(work)
		release := make(chan struct{})
		first := make(chan error)
		go func() {
			first <- work.Do(context.Background(), func(ctx context.Context) error {
				_, err := store.TryBegin(ctx, key)
				<-release
				return err
			})
		}()
		synctest.Wait()

		start := time.Now()
		require.ErrorIs(t, work.Do(t.Context(), func(ctx context.Context) error {
			outcome, err := store.TryBegin(ctx, key)
			require.NoError(t, err)
			require.Equal(t, inbox.InFlight, outcome)
			return inbox.ErrInFlight
		}), inbox.ErrInFlight)
		require.Equal(t, inboxstore.DefaultLockWait, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, work.Do(ctx, func(ctx context.Context) error {
			_, err := store.TryBegin(ctx, key)
			return err
		}), context.DeadlineExceeded)
		require.Equal(t, inboxstore.DefaultLockWait+time.Second, time.Since(start))

		close(release)
		require.NoError(t, <-first)
	})
}

func TestD4_FaultsAreReportedAtOnceAndByEveryCall(t *testing.T) {
	d := dialect.SQLite
	d.SQL = fstest.MapFS{"inbox.sql": {Data: []byte("-- name: begin\nSELECT 1;")}}
	store := inboxstore.New(uow.New(uow.SQL(open(t)), d), inboxstore.LockWait(0))
	for _, part := range []string{"LockWait", "statements missing", "find", "bury"} {
		require.ErrorContains(t, store.Validate(), part)
	}
	require.ErrorContains(t, store.Check(t.Context()), "LockWait")
	require.ErrorContains(t, store.Bury(t.Context(), inbox.Dead{Consumer: "c", MessageID: "m"}), "LockWait")
	_, err := store.Purge(t.Context(), inboxstore.Retention{Dead: time.Hour}, 1)
	require.ErrorContains(t, err, "LockWait")
	_, err = store.TryBegin(t.Context(), key)
	require.ErrorContains(t, err, "LockWait")

	for _, work := range []*uow.UnitOfWork{nil, uow.New(nil, dialect.SQLite), uow.New(uow.SQL(nil), dialect.Dialect{})} {
		require.Error(t, inboxstore.New(work).Validate())
		require.Error(t, inboxstore.NewMemory(work).Validate())
	}
	require.ErrorContains(t, inboxstore.New(uow.New(uow.SQL(nil), dialect.Dialect{})).Validate(), "unknown dialect")
	require.ErrorContains(t, inboxstore.New(uow.New(uow.SQL(nil), dialect.Dialect{})).Validate(), "database is nil")
}

func TestA14_CheckSaysWhatToDo(t *testing.T) {
	db := open(t)
	store := inboxstore.New(uow.New(uow.SQL(db), dialect.SQLite))
	require.ErrorContains(t, store.Check(t.Context()), "migrate.Up")
	require.NoError(t, migrate.Up(t.Context(), db, dialect.SQLite))
	require.NoError(t, store.Check(t.Context()))
	for statement, want := range map[string]string{
		`UPDATE inbox_schema SET version = 99`: "upgrade the library",
		`UPDATE inbox_schema SET version = 0`:  "migrate.Up",
		`DELETE FROM inbox_schema`:             "migrate.Up",
	} {
		_, err := db.Exec(`DELETE FROM inbox_schema; INSERT INTO inbox_schema VALUES (1); ` + statement)
		require.NoError(t, err)
		require.ErrorContains(t, store.Check(t.Context()), want, statement)
	}
}

// D1: a row that no state allows cannot be written, whoever writes it.
func TestD1_ConstraintsTieStateToColumns(t *testing.T) {
	db := open(t)
	require.NoError(t, migrate.Up(t.Context(), db, dialect.SQLite))
	for _, row := range []string{
		`('c', 'm', 'unknown', NULL, NULL, NULL, NULL)`,
		`('c', 'm', 'processed', 't', NULL, NULL, NULL)`,
		`('c', 'm', 'processed', NULL, 'p', '{}', 'e')`,
		`('c', 'm', 'dead', NULL, NULL, NULL, NULL)`,
		`('c', 'm', 'dead', 't', 'p', '{}', NULL)`,
	} {
		_, err := db.Exec(`INSERT INTO inbox_messages (consumer, message_id, state, topic, payload, metadata, last_error) VALUES ` + row)
		require.ErrorContains(t, err, "CHECK constraint", row)
	}
}

func TestA17_DisabledRemembersNothing(t *testing.T) {
	var store inboxstore.Disabled
	for range 2 {
		outcome, err := store.TryBegin(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, inbox.Fresh, outcome)
		require.NoError(t, store.Complete(t.Context(), key))
	}
	gone, err := store.Abandon(t.Context(), key)
	require.NoError(t, err)
	require.True(t, gone)
	_, err = store.TryBegin(t.Context(), inbox.Key{Consumer: "c"})
	require.ErrorIs(t, err, inbox.ErrNoMessageID)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = store.TryBegin(context.Background(), key) }), "it costs nothing")
}
