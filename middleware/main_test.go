package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/migrate"
	"github.com/watermill-inbox/watermill-inbox/tests/testlog"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Watermill's Deduplicator, which an example shows, has a goroutine that nothing can end.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message/router/middleware.(*mapExpiringKeyRepository).cleanOutLoop"))
}

const wait = 10 * time.Second

var errPlanned = errors.New("planned failure")

// bench is a database and what watches it.
type bench struct {
	db     *sql.DB
	work   *uow.UnitOfWork
	store  *inboxstore.Store
	log    *testlog.Logger
	reader *sdkmetric.ManualReader
	cfg    middleware.InboxConfig
	uowCfg middleware.UnitOfWorkConfig
}

func newBench(t testing.TB) *bench {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, db.Stats().InUse)
		require.NoError(t, db.Close())
	})
	require.NoError(t, migrate.Up(t.Context(), db, dialect.SQLite))
	_, err = db.Exec(`CREATE TABLE effects (name text NOT NULL)`)
	require.NoError(t, err)

	b := &bench{db: db, log: testlog.New(), reader: sdkmetric.NewManualReader()}
	b.on(uow.SQL(db))
	b.cfg = middleware.InboxConfig{Logger: b.log, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))}
	b.uowCfg = middleware.UnitOfWorkConfig{Logger: b.log, WaitInitial: time.Millisecond, WaitMax: 2 * time.Millisecond}
	return b
}

// on lets the bench work through another beginner.
func (b *bench) on(beginner uow.Beginner) {
	b.work = uow.New(beginner, dialect.SQLite)
	b.store = inboxstore.New(b.work)
}

// once is the part of the chain that this package is about, without a router to name the consumer.
func (b *bench) once(handler message.HandlerFunc) message.HandlerFunc {
	if b.cfg.Consumer == nil {
		b.cfg.Consumer = func(*message.Message) string { return "consumer" }
	}
	return middleware.UnitOfWork(b.work, b.uowCfg)(middleware.Inbox(b.store, b.cfg)(handler))
}

// effect is what a handler does: a row, in the transaction of the message.
func effect(msg *message.Message) error {
	tx, err := uow.Tx[*sql.Tx](msg.Context())
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(msg.Context(), `INSERT INTO effects (name) VALUES (?)`, msg.UUID)
	return err
}

// requireEffects checks the messages that have had an effect, in order, and that each has its row.
func (b *bench) requireEffects(t *testing.T, names ...string) {
	t.Helper()
	require.Equal(t, names, b.column(t, `SELECT name FROM effects ORDER BY rowid`))
	rows := b.column(t, `SELECT message_id FROM inbox_messages WHERE state = 'processed'`)
	require.ElementsMatch(t, names, rows, "inbox rows")
}

func (b *bench) column(t *testing.T, query string) (column []string) {
	t.Helper()
	rows, err := b.db.QueryContext(context.Background(), query)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var value string
		require.NoError(t, rows.Scan(&value))
		column = append(column, value)
	}
	require.NoError(t, rows.Err())
	return column
}

// requireCounts checks the counters that are not zero, for one consumer.
func (b *bench) requireCounts(t *testing.T, consumer string, want map[string]int64) {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, b.reader.Collect(t.Context(), &data))
	got := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
				if name, _ := point.Attributes.Value("consumer"); name.AsString() == consumer {
					got[m.Name] += point.Value
				}
			}
		}
	}
	require.Equal(t, want, got)
}

// source is a subscriber that shows how each delivery ends, and delivers nothing again by itself.
type source struct {
	out  chan *message.Message
	once sync.Once
}

func (s *source) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.out, nil
}

func (s *source) Close() error {
	s.once.Do(func() { close(s.out) })
	return nil
}

// start runs a plain router with one handler, named "consumer", behind the middlewares given,
// outermost first.
func start(t *testing.T, handler message.NoPublishHandlerFunc, chain ...message.HandlerMiddleware) *source {
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: wait}, nil)
	require.NoError(t, err)
	s := &source{out: make(chan *message.Message)}
	r.AddMiddleware(chain...)
	r.AddConsumerHandler("consumer", "topic", s, handler)
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(context.Background()) }()
	<-r.Running()
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		require.NoError(t, <-stopped)
	})
	return s
}

// deliver hands one message over and reports whether it was acked.
func (s *source) deliver(t *testing.T, id string, payload string) (acked bool) {
	t.Helper()
	msg := message.NewMessage(id, []byte(payload))
	s.out <- msg
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return false
	case <-time.After(wait):
		require.FailNow(t, "neither acked nor nacked")
		return false
	}
}

// call hands one message to a handler without a router.
func call(t *testing.T, handler message.HandlerFunc, id string) error {
	t.Helper()
	msg := message.NewMessageWithContext(t.Context(), id, []byte("{}"))
	produced, err := handler(msg)
	require.Equal(t, t.Context(), msg.Context(), "the message's context was not put back")
	require.Empty(t, produced)
	return err
}

func nothing(handler message.NoPublishHandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) }
}
