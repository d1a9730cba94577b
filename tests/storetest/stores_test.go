package storetest_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/migrate"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
	"github.com/watermill-inbox/watermill-inbox/tests/storetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is one way in which the suites run.
type database struct {
	name     string
	driver   string
	dialect  dialect.Dialect
	features storetest.Features
	sqlx     bool
	level    sql.IsolationLevel
}

var (
	sqlite   = storetest.Features{SQL: true, SingleWriter: true, DeferredKeys: true, Rows: processed("inbox_messages")}
	postgres = storetest.Features{
		SQL: true, AbortsOnError: true, DeferredKeys: true, LockTimeout: true, Rows: processed("inbox_messages"),
		Waiting: `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
	}
	renamed = dialect.Names{Inbox: "taken", Outbox: "sent", Version: "taken_version"}
)

func processed(table string) string {
	return `SELECT count(*) FROM ` + table + ` WHERE state = 'processed'`
}

func single(f storetest.Features) storetest.Features {
	f.SingleConnection = true
	return f
}

func named(f storetest.Features) storetest.Features {
	f.Rows = processed("taken")
	return f
}

var databases = []database{
	{name: "sqlite", driver: "sqlite", dialect: dialect.SQLite, features: sqlite},
	{name: "sqlite sqlx", driver: "sqlite", dialect: dialect.SQLite, features: sqlite, sqlx: true},
	{name: "sqlite pool of one", driver: "sqlite", dialect: dialect.SQLite, features: single(sqlite)},
	{name: "sqlite other names", driver: "sqlite", dialect: dialect.SQLite.WithNames(renamed), features: named(sqlite)},
	{name: "pq", driver: "postgres", dialect: dialect.Postgres, features: postgres},
	{name: "pq sqlx", driver: "postgres", dialect: dialect.Postgres, features: postgres, sqlx: true},
	{name: "pq pool of one", driver: "postgres", dialect: dialect.Postgres, features: single(postgres)},
	{name: "pq other names", driver: "postgres", dialect: dialect.Postgres.WithNames(renamed), features: named(postgres)},
	{name: "pq repeatable read", driver: "postgres", dialect: dialect.Postgres, features: postgres, level: sql.LevelRepeatableRead},
	{name: "pq serializable", driver: "postgres", dialect: dialect.Postgres, features: postgres, level: sql.LevelSerializable},
	{name: "pgx", driver: "pgx", dialect: dialect.Postgres, features: postgres},
	{name: "pgx sqlx pool of one", driver: "pgx", dialect: dialect.Postgres, features: single(postgres), sqlx: true},
	{name: "pgx repeatable read", driver: "pgx", dialect: dialect.Postgres, features: postgres, level: sql.LevelRepeatableRead},
	{name: "pgx serializable", driver: "pgx", dialect: dialect.Postgres, features: postgres, level: sql.LevelSerializable},
}

// prepare gives a function that makes an empty database with the library's tables. On Postgres that
// is a schema, which costs far less than a database of its own and is as good: nothing in the suites
// names one.
func (d database) prepare(t *testing.T) func(t testing.TB) *uow.UnitOfWork {
	tables, err := migrate.Print(d.dialect)
	require.NoError(t, err)
	if d.driver == "sqlite" {
		return func(t testing.TB) *uow.UnitOfWork {
			return d.open(t, "file:"+filepath.Join(t.TempDir(), "test.db")+
				"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)", tables)
		}
	}
	address, err := url.Parse(servicetest.PostgresDSN(t))
	require.NoError(t, err)
	schemas := 0
	return func(t testing.TB) *uow.UnitOfWork {
		schemas++
		schema, dsn := fmt.Sprint("schema_", schemas), *address
		parameters := dsn.Query()
		parameters.Set("search_path", schema)
		dsn.RawQuery = parameters.Encode()
		return d.open(t, dsn.String(), "CREATE SCHEMA "+schema+";\n"+tables)
	}
}

func (d database) open(t testing.TB, dsn, tables string) *uow.UnitOfWork {
	db, err := sqlx.Open(d.driver, dsn)
	require.NoError(t, err)
	if d.features.SingleConnection {
		db.SetMaxOpenConns(1)
	}
	t.Cleanup(func() {
		// database/sql gives a connection back a moment after the context of its transaction ended.
		require.Eventually(t, func() bool { return db.Stats().InUse == 0 }, 5*time.Second, time.Millisecond, "a connection leaked")
		require.NoError(t, db.Close())
	})
	_, err = db.Exec(tables)
	require.NoError(t, err)
	beginner := uow.SQL(db.DB)
	if d.sqlx {
		beginner = uow.SQLX(db)
	}
	return uow.New(beginner, d.dialect).WithIsolation(d.level)
}

func TestUnitOfWork(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			storetest.UnitOfWork(t, storetest.UnitOfWorkHarness{New: d.prepare(t), Features: d.features})
		})
	}
	t.Run("memory", func(t *testing.T) {
		storetest.UnitOfWork(t, storetest.UnitOfWorkHarness{New: func(testing.TB) *uow.UnitOfWork { return uow.NewMemory() }})
	})
}

func TestInbox(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			open := d.prepare(t)
			harness := storetest.InboxHarness{Features: d.features, New: func(t testing.TB) (*uow.UnitOfWork, storetest.InboxStore) {
				work := open(t)
				return work, inboxstore.New(work)
			}}
			if !d.features.SingleConnection && !d.features.SingleWriter {
				harness.Impatient = func(t testing.TB) (*uow.UnitOfWork, storetest.InboxStore) {
					work := open(t)
					return work, inboxstore.New(work, inboxstore.LockWait(storetest.ShortWait))
				}
			}
			storetest.Inbox(t, harness)
		})
	}
	// A17: the store in memory keeps the same promises.
	t.Run("memory", func(t *testing.T) {
		storetest.Inbox(t, storetest.InboxHarness{New: func(testing.TB) (*uow.UnitOfWork, storetest.InboxStore) {
			work := uow.NewMemory()
			return work, inboxstore.NewMemory(work)
		}})
	})
}
