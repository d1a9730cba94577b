package storetest

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// Features says what the database under test can do. The zero value is a store in memory.
type Features struct {
	// SQL says that transactions take SQL text; without it effects are kept in the process.
	SQL bool
	// SingleConnection says that the pool has one connection. What needs two transactions at once
	// is left out then, and the rest shows that one is enough.
	SingleConnection bool
	// SingleWriter says that one transaction at a time may write, so that a second one waits where
	// it begins (SQLite).
	SingleWriter bool
	// AbortsOnError says that a failed statement spoils the transaction up to the last savepoint
	// (Postgres).
	AbortsOnError bool
	// DeferredKeys says that foreign keys may be DEFERRABLE INITIALLY DEFERRED.
	DeferredKeys bool
	// LockTimeout says that the transaction has Postgres' setting lock_timeout.
	LockTimeout bool
	// Waiting counts, in SQL, the transactions of this database that wait for a lock. Without it
	// a wait is taken for granted after a moment in which nothing happened.
	Waiting string
	// Rows counts, in SQL, the inbox rows of handled messages. Without it the store is asked about
	// every message of the test instead.
	Rows string
}

const (
	patience = 20 * time.Second      // until something that must happen has failed to
	moment   = 50 * time.Millisecond // in which something that must not happen would
)

// bench is one empty database and what handlers have done in it.
type bench struct {
	Features
	work *uow.UnitOfWork

	mu   sync.Mutex
	done []string // effects, where there is no SQL
}

func newBench(t *testing.T, work *uow.UnitOfWork, f Features) *bench {
	t.Helper()
	require.NoError(t, work.Validate())
	b := &bench{Features: f, work: work}
	if f.SQL {
		b.do(t, `CREATE TABLE storetest_effects (name varchar(2000) NOT NULL)`)
		b.do(t, `CREATE TABLE storetest_unique (name varchar(40) NOT NULL PRIMARY KEY)`)
	}
	return b
}

// do runs one statement in a transaction of its own.
func (b *bench) do(t *testing.T, statement string) {
	t.Helper()
	require.NoError(t, b.work.Do(context.Background(), func(ctx context.Context) error { return b.exec(ctx, statement) }), statement)
}

// exec runs one statement in the transaction of ctx.
func (b *bench) exec(ctx context.Context, statement string) error {
	conn, err := b.work.Conn(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return err
}

// query reads a column in the transaction of ctx.
func query[T any](ctx context.Context, work *uow.UnitOfWork, statement string) (column []T, err error) {
	conn, err := work.Conn(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var value T
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		column = append(column, value)
	}
	return column, rows.Err()
}

// effect is what a handler does: it leaves name behind, in the transaction of ctx. Names are sent
// in hexadecimal, so that the suite needs neither placeholders nor a word about encodings.
func (b *bench) effect(ctx context.Context, name string) error {
	if b.SQL {
		return b.exec(ctx, fmt.Sprintf(`INSERT INTO storetest_effects (name) VALUES ('%s')`, hex.EncodeToString([]byte(name))))
	}
	return b.work.AfterEnd(ctx, func(committed bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if committed {
			b.done = append(b.done, name)
		}
	})
}

// effects are the names left behind by transactions that were committed, with their number.
func (b *bench) effects(t *testing.T) map[string]int {
	t.Helper()
	b.mu.Lock()
	names := append([]string(nil), b.done...)
	b.mu.Unlock()
	if b.SQL {
		require.NoError(t, b.work.Do(context.Background(), func(ctx context.Context) error {
			coded, err := query[string](ctx, b.work, `SELECT name FROM storetest_effects`)
			for _, c := range coded {
				name, err := hex.DecodeString(c)
				require.NoError(t, err)
				names = append(names, string(name))
			}
			return err
		}, uow.At(sql.LevelDefault)))
	}
	count := map[string]int{}
	for _, name := range names {
		count[name]++
	}
	return count
}

// requireEffects checks that exactly these names were left behind, once each.
func (b *bench) requireEffects(t *testing.T, names ...string) {
	t.Helper()
	want := map[string]int{}
	for _, name := range names {
		want[name] = 1
	}
	require.Equal(t, want, b.effects(t))
}

// requireBlocked waits until n transactions wait for a lock. done must not have anything to say.
func requireBlocked[T any](t *testing.T, b *bench, n int, done ...<-chan T) {
	t.Helper()
	waits := time.After(moment) // where nothing shows a wait, a moment without an answer must do
	if b.Waiting != "" {
		require.Eventually(t, func() bool {
			var waiting []int
			err := b.work.Do(context.Background(), func(ctx context.Context) (err error) {
				waiting, err = query[int](ctx, b.work, b.Waiting)
				return err
			})
			return assert.NoError(t, err) && len(waiting) == 1 && waiting[0] >= n
		}, patience, time.Millisecond, "no transaction waits")
	}
	for _, c := range done {
		select {
		case v := <-c:
			require.Fail(t, "did not wait", "%v", v)
		case <-waits:
			waits = closed // the moment is the same for all
		}
	}
}

// closed is a time that has come.
var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// receive takes what must come.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// ask runs fn in a goroutine of its own, to its end whatever end that is, and gives its result.
func ask[T any](fn func() T) <-chan T {
	result := make(chan T, 1)
	go func() { result <- fn() }()
	return result
}
