package outboxstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/migrate"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/tests/services"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// outbox is what the scenarios need: everything that Store and Memory have in common.
type outbox interface {
	outboxstore.Source
	Append(ctx context.Context, envelopes ...outboxstore.Envelope) ([]outboxstore.Result, error)
	AppendOwn(ctx context.Context, envelopes ...outboxstore.Envelope) ([]outboxstore.Result, error)
	Stage(ctx context.Context, topic string, messages ...*message.Message) error
	Publisher(cfg ...outboxstore.PublisherConfig) message.Publisher
	Purge(ctx context.Context, policy outboxstore.PurgePolicy) (int64, error)
	Stats(ctx context.Context) (outboxstore.Stats, error)
	Check(ctx context.Context) error
	Validate() error
	UnitOfWork() *uow.UnitOfWork
}

// bench is one store, empty.
type bench struct {
	outbox
	db *sql.DB // nil for Memory
	// second is another store on the same rows, as another process has it. Memory has none: it is
	// the same one.
	second outbox
}

// eachStore runs a scenario on every store.
func eachStore(t *testing.T, scenario func(t *testing.T, b bench)) {
	t.Run("memory", func(t *testing.T) {
		m := outboxstore.NewMemory(uow.NewMemory())
		scenario(t, bench{outbox: m, second: m})
	})
	eachDatabase(t, scenario)
}

// eachDatabase runs a scenario on every store that has a database.
func eachDatabase(t *testing.T, scenario func(t *testing.T, b bench)) {
	t.Run("sqlite", func(t *testing.T) { scenario(t, sqliteBench(t)) })
	t.Run("postgres", func(t *testing.T) { scenario(t, postgresBench(t)) })
}

func sqliteBench(t testing.TB) bench {
	path := filepath.Join(t.TempDir(), "outbox.db")
	return open(t, "sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)", dialect.SQLite)
}

// postgresBench makes a schema of the test's own: a database of its own would take a second.
func postgresBench(t testing.TB) bench {
	dsn := os.Getenv(services.PostgresVariable)
	if dsn == "" {
		t.Skipf("%s is not set: run `make test`, which starts the servers", services.PostgresVariable)
	}
	names := dialect.Names{Schema: "outbox_" + strings.ToLower(rand.Text()), Outbox: "outgoing"}
	return open(t, "postgres", dsn, dialect.Postgres.WithNames(names))
}

func open(t testing.TB, driver, dsn string, d dialect.Dialect) bench {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(20)
	if schema := d.Names().Schema; schema != "" {
		_, err = db.Exec(`CREATE SCHEMA "` + schema + `"`)
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := db.Exec(`DROP SCHEMA "` + schema + `" CASCADE`)
			require.NoError(t, err)
		})
	}
	require.NoError(t, migrate.Up(t.Context(), db, d))
	work := uow.New(uow.SQL(db), d)
	return bench{outbox: outboxstore.New(work), second: outboxstore.New(work), db: db}
}

// table is the quoted name of the outbox table, for statements of the tests' own.
func (b bench) table() string {
	return b.UnitOfWork().Dialect().Names().Rewrite("outbox_messages")
}

// exec runs a statement on the outbox table, whose name stands as %s in it.
func (b bench) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	_, err := b.db.ExecContext(t.Context(), fmt.Sprintf(statement, b.table()), args...)
	require.NoError(t, err)
}

func (b bench) count(t testing.TB, where string) (n int) {
	t.Helper()
	require.NoError(t, b.db.QueryRowContext(context.Background(), "SELECT count(*) FROM "+b.table()+" WHERE "+where).Scan(&n))
	return n
}

// add commits envelopes.
func (b bench) add(t testing.TB, envelopes ...outboxstore.Envelope) []outboxstore.Result {
	t.Helper()
	results, err := b.AppendOwn(context.Background(), envelopes...)
	require.NoError(t, err)
	return results
}

func (b bench) claim(t testing.TB, limit int) []outboxstore.Claimed {
	t.Helper()
	claimed, err := b.Claim(context.Background(), request(limit))
	require.NoError(t, err)
	return claimed
}

func request(limit int) outboxstore.ClaimRequest {
	return outboxstore.ClaimRequest{Owner: "test", Limit: limit, Lease: time.Minute}
}

func envelope(id string) outboxstore.Envelope {
	return outboxstore.Envelope{Topic: "orders", Message: message.NewMessage(id, []byte("payload of "+id))}
}

func keyed(id, key string) outboxstore.Envelope {
	e := envelope(id)
	e.OrderingKey = key
	return e
}

func ids(claimed []outboxstore.Claimed) []string {
	out := []string{}
	for _, c := range claimed {
		out = append(out, c.Envelope.Message.UUID)
	}
	return out
}

func leases(claimed []outboxstore.Claimed) []outboxstore.Lease {
	var out []outboxstore.Lease
	for _, c := range claimed {
		out = append(out, c.Lease)
	}
	return out
}

// within polls until the condition holds.
func within(t testing.TB, d time.Duration, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, d, 5*time.Millisecond, what)
}
