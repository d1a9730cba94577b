package dialect_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestA7_A19_ClassesOfPostgres(t *testing.T) {
	classes := map[dialect.Class][]string{
		dialect.Retryable:   {"40001", "40P01"},
		dialect.LockTimeout: {"55P03"},
		dialect.Missing:     {"42P01", "42703", "3F000"},
		dialect.Infrastructure: {
			"08000", "08006", "53100", "53200", "53300", "57P01", "57P02", "57P03", "25006",
		},
		dialect.Other: {
			"08P01", "23505", "23503", "22021", "22P02", "42601", "42501", "25P02", "40002", "40003", "57014", "55006", "P0001", "XX000", "",
		},
	}
	for want, codes := range classes {
		for _, code := range codes {
			for _, err := range []error{&pq.Error{Code: pqerror.Code(code)}, &pgconn.PgError{Code: code}} {
				require.Equal(t, want, dialect.Postgres.Classify(err), "%T %s", err, code)
				require.Equal(t, want, dialect.Postgres.Classify(fmt.Errorf("wrapped: %w", errors.Join(errors.New("other"), err))), code)
				require.False(t, dialect.Connection(err), "an answer of the server is no broken connection")
			}
		}
	}
	require.Equal(t, dialect.Other, dialect.Postgres.Classify(nil))
	require.Equal(t, dialect.Other, dialect.Postgres.Classify(io.EOF))
}

// The errors are the engine's own.
func TestA7_A19_ClassesOfSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	open := func(options string) *sql.DB {
		db, err := sql.Open("sqlite", "file:"+path+options)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	db := open("?_txlock=immediate&_pragma=journal_mode(WAL)")
	exec := func(db *sql.DB, statement string) error {
		_, err := db.ExecContext(t.Context(), statement)
		return err
	}
	require.NoError(t, exec(db, `CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER CHECK (n > 0))`))
	require.NoError(t, exec(db, `INSERT INTO t VALUES (1, 1)`))
	class := func(err error) dialect.Class {
		t.Helper()
		require.Error(t, err)
		return dialect.SQLite.Classify(fmt.Errorf("wrapped: %w", err))
	}

	require.Equal(t, dialect.Other, class(exec(db, `INSERT INTO t VALUES (1, 1)`)))
	require.Equal(t, dialect.Other, class(exec(db, `INSERT INTO t VALUES (2, -1)`)))
	require.Equal(t, dialect.Other, class(exec(db, `SELEC`)))
	require.Equal(t, dialect.Missing, class(exec(db, `SELECT 1 FROM nowhere`)))
	require.Equal(t, dialect.Missing, class(exec(db, `SELECT absent FROM t`)))
	require.Equal(t, dialect.Missing, class(exec(db, `INSERT INTO t (absent) VALUES (1)`)))
	require.Equal(t, dialect.Infrastructure, class(exec(open("?mode=ro"), `DELETE FROM t`)))
	nowhere, err := sql.Open("sqlite", "file:"+filepath.Join(path, "no", "directory.db"))
	require.NoError(t, err)
	defer nowhere.Close()
	require.Equal(t, dialect.Infrastructure, class(nowhere.PingContext(t.Context())))

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, dialect.Retryable, class(exec(db, `INSERT INTO t VALUES (3, 1)`)), "busy")
	require.NoError(t, tx.Rollback())

	// C20: a snapshot that is too old to write, which has a code of its own.
	deferred := open("")
	tx, err = deferred.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM t`).Scan(&n))
	require.NoError(t, exec(db, `INSERT INTO t VALUES (4, 1)`))
	_, err = tx.ExecContext(t.Context(), `INSERT INTO t VALUES (5, 1)`)
	require.Equal(t, dialect.Retryable, class(err))
	require.NoError(t, tx.Rollback())
}

func TestA19_BrokenConnections(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, dial := (&net.Dialer{Timeout: time.Nanosecond}).Dial("tcp", "192.0.2.1:1") // TEST-NET: nobody is there
	require.Error(t, dial)
	for err, broken := range map[error]bool{
		driver.ErrBadConn: true, sql.ErrConnDone: true, io.EOF: true, io.ErrUnexpectedEOF: true, net.ErrClosed: true, dial: true,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}: true,
		&net.DNSError{Name: "nowhere"}:                                        true, os.ErrDeadlineExceeded: true,
		context.DeadlineExceeded: false, context.Canceled: false, ctx.Err(): false,
		sql.ErrTxDone: false, sql.ErrNoRows: false, errors.New("EOF"): false,
	} {
		require.Equal(t, broken, dialect.Connection(err), "%v", err)
		require.Equal(t, broken, dialect.Connection(fmt.Errorf("wrapped: %w", err)), "%v", err)
	}
	require.True(t, dialect.Connection(errors.Join(ctx.Err(), io.EOF)))
	require.False(t, dialect.Connection(nil))
}
