// Package e2e drives the library as a whole against real databases and brokers.
package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/migrate"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is one kind of database that a test runs over.
type database struct {
	name    string
	dialect dialect.Dialect
	open    func(t *testing.T) *sqlx.DB
}

var databases = []database{
	{"sqlite", dialect.SQLite, openSQLite},
	{"postgres", dialect.Postgres, func(t *testing.T) *sqlx.DB { return openPostgres(t, servicetest.PostgresDSN(t)) }},
}

func openSQLite(t *testing.T) *sqlx.DB {
	dsn := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	db, err := sqlx.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	prepare(t, db, dialect.SQLite)
	return db
}

func openPostgres(t *testing.T, dsn string) *sqlx.DB {
	db := openPlain(t, dsn)
	prepare(t, db, dialect.Postgres)
	return db
}

// prepare makes the library's tables, and a table of effects that would show a double one.
func prepare(t *testing.T, db *sqlx.DB, d dialect.Dialect) {
	require.NoError(t, migrate.Up(t.Context(), db.DB, d))
	_, err := db.Exec(`CREATE TABLE effects (consumer text NOT NULL, message_id text NOT NULL)`)
	require.NoError(t, err)
}

// effect is what a handler does: one row, in the unit of work of the message.
func effect(msg *message.Message, consumer string) error {
	tx, err := uow.Tx[*sql.Tx](msg.Context())
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(msg.Context(), `INSERT INTO effects (consumer, message_id) VALUES ($1, $2)`, consumer, msg.UUID)
	return err
}

// requireOnce checks the promise: each message has exactly one effect, and one inbox row, for the
// consumer.
func requireOnce(t *testing.T, db *sqlx.DB, consumer string, messages int) {
	t.Helper()
	for i := range messages {
		var n int
		require.NoError(t, db.Get(&n, `SELECT count(*) FROM effects WHERE consumer = $1 AND message_id = $2`, consumer, id(i)))
		require.Equal(t, 1, n, "effects of %s", id(i))
	}
	var rows int
	require.NoError(t, db.Get(&rows, `SELECT count(*) FROM inbox_messages WHERE consumer = $1 AND state = 'processed'`, consumer))
	require.Equal(t, messages, rows, "inbox rows")
}

func id(i int) string { return fmt.Sprintf("message-%04d", i) }

// delivery makes one delivery of message i to a consumer, as Watermill's router would.
func delivery(ctx context.Context, i int) *message.Message {
	return message.NewMessageWithContext(ctx, id(i), []byte(`{}`))
}

// openPlain opens Postgres without making tables.
func openPlain(t *testing.T, dsn string) *sqlx.DB {
	db, err := sqlx.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// effects counts the effects of a consumer.
func effects(t *testing.T, db *sqlx.DB, consumer string) (n int) {
	require.NoError(t, db.Get(&n, `SELECT count(*) FROM effects WHERE consumer = $1`, consumer))
	return n
}
