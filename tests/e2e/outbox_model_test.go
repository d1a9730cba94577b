package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/migrate"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// C3, C4, C7, D1: whatever happens to the rows in whatever order, a model says what the store must
// answer. No row is lost, none is handed out outside its promises, every state has an exit.
func TestC3_C4_C7_D1_StateMachine(t *testing.T) {
	require.NoError(t, flag.Set("rapid.steps", fmt.Sprint(size(40, 100))))
	t.Run("sqlite", func(t *testing.T) {
		checkModel(t, openSQLite(t), dialect.SQLite, "0", size(6, 200)) // SQLite in Go is slow under the race detector
	})
	t.Run("postgres", func(t *testing.T) {
		db := openPlain(t, servicetest.PostgresDSN(t))
		d := dialect.Postgres.WithNames(dialect.Names{Schema: "other", Outbox: "outgoing"})
		_, err := db.Exec("CREATE SCHEMA other")
		require.NoError(t, err)
		require.NoError(t, migrate.Up(t.Context(), db.DB, d))
		checkModel(t, db, d, "now() - interval '2 hours'", size(15, 1000))
	})
}

func checkModel(t *testing.T, db *sqlx.DB, d dialect.Dialect, past string, checks int) {
	require.NoError(t, flag.Set("rapid.checks", fmt.Sprint(checks)))
	rapid.Check(t, func(t *rapid.T) {
		work := uow.New(uow.SQLX(db), d)
		m := &model{work: work, store: outboxstore.New(work), db: db, table: d.Names().Rewrite("outbox_messages"), past: past, rows: map[string]*modelRow{}}
		m.sql(t, "DELETE FROM %s")
		t.Repeat(map[string]func(*rapid.T){
			"":           m.compare,
			"append":     m.append,
			"rollback":   m.rollback,
			"claim":      m.claim,
			"claim more": m.claim,
			"complete":   m.complete,
			"release":    m.release,
			"reject":     m.reject,
			"renew":      m.renew,
			"crash":      m.expire,
			"time":       m.pass,
			"requeue":    m.requeue,
			"discard":    m.discard,
			"purge":      m.purge,
		})
		m.exit(t)
	})
}

type model struct {
	work  *uow.UnitOfWork
	store *outboxstore.Store
	db    *sqlx.DB
	table string
	past  string // a time in SQL, more than an hour ago

	rows   map[string]*modelRow // by message id
	leases []outboxstore.Lease  // all that were ever handed out
}

type modelRow struct {
	id, key             string
	seq                 int64
	state               outboxstore.State
	due                 bool // of a pending row
	expired             bool // of a leased row
	receipt, lastError  string
	attempt, rejections int
}

func (r *modelRow) unfinished() bool {
	return r.state == outboxstore.Pending || r.state == outboxstore.Leased
}

func (r *modelRow) free() bool {
	return r.state == outboxstore.Pending && r.due || r.state == outboxstore.Leased && r.expired
}

func (m *model) sql(t *rapid.T, statement string, args ...any) {
	_, err := m.db.Exec(strings.ReplaceAll(strings.ReplaceAll(statement, "%s", m.table), "%p", m.past), args...)
	require.NoError(t, err)
}

// ordered gives the rows by number.
func (m *model) ordered() []*modelRow {
	return slices.SortedFunc(maps.Values(m.rows), func(a, b *modelRow) int { return cmp.Compare(a.seq, b.seq) })
}

// compare checks every row of the table against the model.
func (m *model) compare(t *rapid.T) {
	listed, err := m.store.List(context.Background(), outboxstore.Filter{Limit: outboxstore.MaxPage})
	require.NoError(t, err)
	want := m.ordered()
	require.Len(t, listed, len(want))
	for i, row := range listed {
		w := want[i]
		require.Equal(t,
			[]any{w.id, w.seq, w.key, w.state, w.attempt, w.rejections, w.lastError},
			[]any{row.Envelope.Message.UUID, row.Seq, row.Envelope.OrderingKey, row.State, row.Attempt, row.Rejections, row.LastError})
	}
}

func (m *model) envelopes(t *rapid.T) []outboxstore.Envelope {
	batch := make([]outboxstore.Envelope, rapid.IntRange(1, 6).Draw(t, "envelopes"))
	for i := range batch {
		n := rapid.IntRange(0, 60).Draw(t, "id")
		batch[i] = outboxstore.Envelope{Topic: "topic", Message: message.NewMessage(fmt.Sprintf("m%02d", n), []byte{byte(n)})}
		if n%4 != 0 {
			batch[i].OrderingKey = fmt.Sprint("k", n%3)
		}
		if rapid.IntRange(0, 4).Draw(t, "delay") == 0 {
			batch[i].DueAt = time.Now().Add(time.Hour)
		}
	}
	return batch
}

func (m *model) append(t *rapid.T) {
	batch := m.envelopes(t)
	results, err := m.store.AppendOwn(context.Background(), batch...)
	require.NoError(t, err)
	for i, e := range batch {
		id := e.Message.UUID
		if row := m.rows[id]; row != nil {
			require.Equal(t, outboxstore.AlreadyEnqueued, results[i].Outcome)
			require.Equal(t, row.seq, results[i].Seq)
			continue
		}
		require.Equal(t, outboxstore.Enqueued, results[i].Outcome)
		require.Greater(t, results[i].Seq, m.newest(), "a new row is the last one")
		m.rows[id] = &modelRow{id: id, key: e.OrderingKey, seq: results[i].Seq, state: outboxstore.Pending, due: e.DueAt.IsZero()}
	}
}

// newest is the highest number in the table.
func (m *model) newest() (seq int64) {
	for _, row := range m.rows {
		seq = max(seq, row.seq)
	}
	return seq
}

func (m *model) rollback(t *rapid.T) {
	batch := m.envelopes(t)
	require.ErrorIs(t, m.work.Do(context.Background(), func(ctx context.Context) error {
		_, err := m.store.Append(ctx, batch...)
		require.NoError(t, err)
		return errPlanned
	}), errPlanned)
}

func (m *model) claim(t *rapid.T) {
	limit, perKey := rapid.IntRange(1, 12).Draw(t, "limit"), rapid.IntRange(1, 5).Draw(t, "per key")
	store, whole := m.store, rapid.Bool().Draw(t, "another process")
	if whole { // it has seen nothing yet and so looks at everything
		store = outboxstore.New(m.work)
	}
	m.take(t, store, limit, perKey, whole)
}

func (m *model) take(t *rapid.T, store *outboxstore.Store, limit, perKey int, whole bool) []outboxstore.Lease {
	claimed, err := store.Claim(context.Background(), outboxstore.ClaimRequest{Owner: "o", Limit: limit, PerKey: min(perKey, limit), Lease: time.Hour})
	require.NoError(t, err)

	// What may be handed out: free rows without a key, and of each key the free rows before the
	// first one that is not.
	may, lanes := map[int64]*modelRow{}, map[string][]int64{}
	closed := map[string]bool{}
	for _, row := range m.ordered() {
		switch {
		case !row.unfinished():
		case row.key == "" && row.free():
			may[row.seq] = row
		case row.key == "":
		case closed[row.key] || !row.free() || len(lanes[row.key]) == min(perKey, limit):
			closed[row.key] = true
		default:
			may[row.seq], lanes[row.key] = row, append(lanes[row.key], row.seq)
		}
	}
	require.LessOrEqual(t, len(claimed), limit)
	if whole {
		require.Len(t, claimed, min(limit, len(may)), "everything that may be claimed is")
	}
	var leases []outboxstore.Lease
	place := map[string]int{}
	for i, c := range claimed {
		row := may[c.Lease.Seq]
		require.NotNil(t, row, "row %d may not be claimed", c.Lease.Seq)
		require.Equal(t, row.id, c.Envelope.Message.UUID)
		if row.key != "" {
			require.Equal(t, lanes[row.key][place[row.key]], c.Lease.Seq, "key %s has a gap or is out of order", row.key)
			place[row.key]++
		} else if i > 0 && claimed[i-1].Envelope.OrderingKey == "" {
			before := claimed[i-1]
			require.False(t, before.Envelope.DueAt.After(c.Envelope.DueAt), "out of order of due time")
		}
		for _, old := range m.leases {
			require.NotEqual(t, old.Receipt, c.Lease.Receipt, "a receipt is used again")
		}
		row.state, row.receipt, row.expired = outboxstore.Leased, c.Lease.Receipt, false
		row.attempt++
		require.Equal(t, row.attempt, c.Attempt)
		require.Equal(t, row.rejections, c.Rejections)
		leases = append(leases, c.Lease)
	}
	m.leases = append(m.leases, leases...)
	return leases
}
