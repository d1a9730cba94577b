package migrate_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/migrate"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database opens one and the same database as often as a test likes.
type database struct {
	name    string
	dialect dialect.Dialect
	tables  string // lists tables and indexes, in SQL
	locate  func(t *testing.T) (driver, dsn string)
}

var databases = []database{
	{"sqlite", dialect.SQLite, `SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'`,
		func(t *testing.T) (string, string) {
			return "sqlite", "file:" + filepath.Join(t.TempDir(), "test.db") + "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
		}},
	{"pq", dialect.Postgres, relations, func(t *testing.T) (string, string) { return "postgres", servicetest.PostgresDSN(t) }},
	{"pgx", dialect.Postgres, relations, func(t *testing.T) (string, string) { return "pgx", servicetest.PostgresDSN(t) }},
}

const relations = `SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
	UNION ALL SELECT indexname FROM pg_indexes WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`

func open(t *testing.T, driver, dsn string, pool int) *sql.DB {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(pool)
	t.Cleanup(func() {
		require.Zero(t, db.Stats().InUse)
		require.NoError(t, db.Close())
	})
	return db
}

func (d database) has(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), d.tables)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	return names
}

func check(t *testing.T, db *sql.DB, d dialect.Dialect) error {
	return inboxstore.New(uow.New(uow.SQL(db), d)).Check(t.Context())
}

func each(t *testing.T, run func(t *testing.T, d database)) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) { run(t, d) })
	}
}

// A pool of one is enough, so a lock that wants another connection would wait for ever.
func TestD3_UpTwiceAndDown(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		driver, dsn := d.locate(t)
		db := open(t, driver, dsn, 1)
		require.ErrorContains(t, check(t, db, d.dialect), "run the migrations")
		for range 2 {
			require.NoError(t, migrate.Up(t.Context(), db, d.dialect))
			require.NoError(t, check(t, db, d.dialect))
		}
		_, err := db.Exec(`INSERT INTO inbox_messages (consumer, message_id) VALUES ('c', 'm')`)
		require.NoError(t, err)
		require.NoError(t, migrate.Up(t.Context(), db, d.dialect), "what is there stays")
		_, err = db.Exec(`INSERT INTO inbox_messages (consumer, message_id) VALUES ('c', 'm')`)
		require.Error(t, err)
		for range 2 {
			require.NoError(t, migrate.Down(t.Context(), db, d.dialect))
		}
		require.Subset(t, []string{"inbox_schema_history", "inbox_schema_history_pkey", "inbox_schema_lock", "inbox_schema_lock_pkey"},
			d.has(t, db), "nothing but goose's own is left")
		require.ErrorContains(t, check(t, db, d.dialect), "run the migrations")
		require.NoError(t, migrate.Up(t.Context(), db, d.dialect))
		require.NoError(t, check(t, db, d.dialect))
	})
}

// Several processes, each with a pool of its own, migrate at the same time.
func TestD3_ManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		driver, dsn := d.locate(t)
		var pools []*sql.DB
		for range 4 {
			pools = append(pools, open(t, driver, dsn, 1))
		}
		var all sync.WaitGroup
		begin := make(chan struct{})
		for _, db := range pools {
			all.Go(func() {
				<-begin
				assert.NoError(t, migrate.Up(t.Context(), db, d.dialect))
			})
		}
		close(begin)
		all.Wait()
		require.NoError(t, check(t, pools[0], d.dialect))
		var versions int
		require.NoError(t, pools[0].QueryRow(`SELECT count(*) FROM inbox_schema`).Scan(&versions))
		require.Equal(t, 1, versions, "the step ran once")
	})
}

// What is printed, for a tool of the user's own, makes the same tables as Up.
func TestD3_PrintMakesTheSameTables(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		driver, dsn := d.locate(t)
		text, err := migrate.Print(d.dialect)
		require.NoError(t, err)
		require.NotContains(t, text, "goose")
		require.NotContains(t, text, "DROP")
		printed := open(t, driver, dsn, 2)
		_, err = printed.Exec(text)
		require.NoError(t, err)
		require.NoError(t, check(t, printed, d.dialect))

		driver, dsn = d.locate(t)
		migrated := open(t, driver, dsn, 2)
		require.NoError(t, migrate.Up(t.Context(), migrated, d.dialect))
		require.Subset(t, d.has(t, migrated), d.has(t, printed))
	})
}

func TestD2_OtherNames(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		driver, dsn := d.locate(t)
		db := open(t, driver, dsn, 1)
		names := dialect.Names{Inbox: "order", Outbox: "select", Version: "app_version"} // keywords, too
		other := d.dialect.WithNames(names)
		require.NoError(t, migrate.Up(t.Context(), db, other))
		require.NoError(t, check(t, db, other))
		require.NoError(t, migrate.Up(t.Context(), db, d.dialect), "both may live side by side")
		require.NoError(t, check(t, db, d.dialect))
		require.Contains(t, d.has(t, db), "order")
		require.NoError(t, migrate.Down(t.Context(), db, other))
		require.NoError(t, check(t, db, d.dialect), "taking back one leaves the other")
		require.NotContains(t, d.has(t, db), "order")
	})
}

func TestD2_OtherSchema(t *testing.T) {
	dsn := servicetest.PostgresDSN(t)
	db := open(t, "postgres", dsn, 1)
	d := dialect.Postgres.WithNames(dialect.Names{Schema: "app"})
	require.Error(t, migrate.Up(t.Context(), db, d), "the schema is the user's to make")
	_, err := db.Exec(`CREATE SCHEMA app`)
	require.NoError(t, err)
	require.NoError(t, migrate.Up(t.Context(), db, d))
	require.NoError(t, check(t, db, d))
	require.Error(t, check(t, db, dialect.Postgres), "nothing of it is in the default schema")
	var outside int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&outside))
	require.Zero(t, outside)
	require.NoError(t, migrate.Down(t.Context(), db, d))
	require.Error(t, check(t, db, d))

	// The connection's search path decides where no schema is named.
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	parameters := address.Query()
	parameters.Set("search_path", "app")
	address.RawQuery = parameters.Encode()
	require.NoError(t, migrate.Up(t.Context(), open(t, "postgres", address.String(), 1), dialect.Postgres))
	require.NoError(t, check(t, db, d))
}

func TestD3_FilesForAToolOfTheUsersOwn(t *testing.T) {
	for _, d := range []dialect.Dialect{dialect.Postgres, dialect.SQLite} {
		tree, err := migrate.FS(d.WithNames(dialect.Names{Inbox: "taken"}))
		require.NoError(t, err)
		files, err := fs.Glob(tree, "*.sql")
		require.NoError(t, err)
		require.Len(t, files, dialect.SchemaVersion)
		for i, name := range files {
			require.Contains(t, name, fmt.Sprintf("%05d_", i+1))
			text, err := fs.ReadFile(tree, name)
			require.NoError(t, err)
			require.Contains(t, string(text), "-- +goose Up")
			require.Contains(t, string(text), "-- +goose Down")
			require.Contains(t, string(text), `"taken"`)
			require.NotContains(t, string(text), "inbox_messages")
		}
	}
}

func TestD4_FaultsAreReportedBeforeAnythingRuns(t *testing.T) {
	bad := dialect.SQLite.WithNames(dialect.Names{Inbox: `x"; DROP TABLE y; --`})
	driver, dsn := databases[0].locate(t)
	db := open(t, driver, dsn, 1)
	require.ErrorContains(t, migrate.Up(t.Context(), db, bad), "Names.Inbox")
	require.ErrorContains(t, migrate.Down(t.Context(), db, bad), "Names.Inbox")
	require.Empty(t, databases[0].has(t, db))
	_, err := migrate.Print(bad)
	require.ErrorContains(t, err, "Names.Inbox")
	_, err = migrate.FS(dialect.Dialect{})
	require.ErrorContains(t, err, "unknown dialect")
	require.ErrorContains(t, migrate.Up(t.Context(), nil, dialect.SQLite), "the database is nil")
}
