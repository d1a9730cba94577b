package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// C3, C7, C11: what a claim, the statistics, a list and a purge read does not depend on how many
// rows are forwarded, delayed, dead, or behind a head that waits.
func TestC3_C7_C11_CostDoesNotGrowWithTheTable(t *testing.T) {
	db, dsn := openPostgresDSN(t)
	forwarded, delayed, dead, behind := size(100_000, 1_000_000), size(20_000, 100_000), size(10_000, 100_000), size(20_000, 100_000)
	for _, rows := range []struct {
		n                            int
		state, key, due, finished, e string
	}{
		{forwarded, "forwarded", "CASE WHEN i % 2 = 0 THEN 'key-' || i % 500 END", "now() - interval '1 hour'", "now() - interval '30 minutes' + i * interval '1 millisecond'", "NULL"},
		{delayed, "pending", "NULL", "now() + interval '1 day'", "NULL", "NULL"},
		{dead, "dead", "NULL", "now() - interval '1 hour'", "now() - interval '20 minutes'", "'broker says no'"},
		{behind, "pending", "'parked'", "now() + CASE WHEN i = 1 THEN interval '1 day' ELSE interval '-1 hour' END", "NULL", "NULL"},
		{300, "pending", "CASE WHEN i % 3 = 0 THEN 'live-' || i % 20 END", "now() - interval '1 minute'", "NULL", "NULL"},
	} {
		_, err := db.Exec(fmt.Sprintf(`INSERT INTO outbox_messages (topic, message_id, payload, metadata, state, ordering_key, due_at, finished_at, last_error)
			SELECT 'topic', '%s/%s-' || i, 'x', '{}', '%s', %s, %s, %s, %s FROM generate_series(1, %d) AS i`,
			rows.state, strings.ReplaceAll(rows.key, "'", ""), rows.state, rows.key, rows.due, rows.finished, rows.e, rows.n))
		require.NoError(t, err)
	}
	_, err := db.Exec(`VACUUM ANALYZE outbox_messages`)
	require.NoError(t, err)

	queries, err := dialect.Postgres.Queries("outbox.sql")
	require.NoError(t, err)
	const limit = 200
	all := int64(-1) << 56 // from the beginning
	for _, c := range []struct {
		name, statement string
		args            []any
		rows            float64 // that may be read, whatever the table holds
	}{
		{"claim", "claim", []any{"o", "r", 60_000_000, limit, 50, "", 1000, all, true}, 20 * limit},
		{"claim of one", "claim", []any{"o", "r", 60_000_000, 1, 1, "", 1000, all, true}, 200},
		{"stats", "stats", []any{outboxstore.StatsLimit}, 8 * outboxstore.StatsLimit},
		{"purge", "purge", []any{"forwarded", 0, 1000}, 4 * 1000},
		{"list of dead", "list", []any{"dead", 0, "", "", "", "", 0, 100, false}, 2.5 * float64(dead)},
		{"list of pending", "list", []any{"pending", 0, "", "", "", "", 0, 100, false}, 2.5 * float64(delayed+behind+300)},
		{"list of leased", "list", []any{"leased", 0, "", "", "", "", 0, 100, false}, 2.5 * float64(behind+300)},
		{"list of all", "list", []any{"", 0, "", "", "", "", 0, 100, false}, 1000},
	} {
		plan := explain(t, db, queries[c.statement], c.args...)
		t.Logf("%s reads %.0f rows in %.0f buffers by %v", c.name, plan.rows, plan.buffers, plan.by)
		require.Empty(t, plan.sequential, "%s reads the whole table", c.name)
		require.LessOrEqual(t, plan.rows, c.rows, "%s reads too much: %v", c.name, plan.by)
	}

	// The real thing, each call under the server's own limit.
	bounded := openPlain(t, withParameter(t, dsn, "statement_timeout", "1000"))
	store := newOutbox(bounded)
	for taken := 0; taken < 300; {
		claimed, err := store.Claim(t.Context(), outboxstore.ClaimRequest{Owner: "o", Limit: 60, Lease: time.Minute})
		require.NoError(t, err)
		require.NotEmpty(t, claimed, "only %d rows were found", taken)
		taken += len(claimed)
		leases := make([]outboxstore.Lease, len(claimed))
		for i, c := range claimed {
			leases[i] = c.Lease
		}
		_, err = store.Complete(t.Context(), leases, true)
		require.NoError(t, err)
	}
	for range 3 {
		n, err := store.Purge(t.Context(), outboxstore.PurgePolicy{Forwarded: time.Millisecond})
		require.NoError(t, err)
		require.Equal(t, int64(1000), n)
	}
}

// plan is what EXPLAIN ANALYZE says of a statement on the outbox table.
type plan struct {
	rows, buffers float64
	sequential    []string
	by            map[string]float64 // rows by index
}

// explain runs a statement, tells what it read, and takes back what it did.
func explain(t *testing.T, db *sqlx.DB, statement string, args ...any) plan {
	t.Helper()
	var text string
	work := uow.New(uow.SQLX(db), dialect.Postgres)
	require.ErrorIs(t, work.Do(t.Context(), func(ctx context.Context) error {
		tx, err := uow.Tx[*sqlx.Tx](ctx)
		require.NoError(t, err)
		require.NoError(t, tx.GetContext(ctx, &text, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+statement, args...))
		return errUndo
	}), errUndo)
	var answer []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	p := plan{by: map[string]float64{}, buffers: answer[0].Plan.Hit + answer[0].Plan.Read}
	p.add(answer[0].Plan)
	return p
}

var errUndo = errors.New("undo")

type planNode struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Hit      float64 `json:"Shared Hit Blocks"`
	Read     float64 `json:"Shared Read Blocks"`
	Plans    []planNode
}

func (p *plan) add(n planNode) {
	if n.Loops > 0 {
		switch {
		case n.Type == "Seq Scan" && n.Relation == "outbox_messages":
			p.sequential = append(p.sequential, n.Type)
		case strings.Contains(n.Type, "Scan") && (n.Index != "" || n.Relation != ""):
			read := (n.Rows + n.Filtered) * n.Loops
			p.rows += read
			p.by[n.Type+" "+n.Index] += read
		}
	}
	for _, child := range n.Plans {
		p.add(child)
	}
}

// C8: a writing transaction stands open in the same database, and holds back the removal of dead
// entries. Forwarding goes on, and what a claim reads does not grow with what was forwarded since.
func TestC8_OpenTransactionDelaysNothing(t *testing.T) {
	db, _ := openPostgresDSN(t)
	store, n := newOutbox(db), size(10_000, 300_000)
	open, err := db.Beginx()
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.Exec(`INSERT INTO effects (consumer, message_id) VALUES ('open', 'open')`)
	require.NoError(t, err)
	_, err = db.Exec(`ALTER TABLE outbox_messages SET (autovacuum_enabled = false)`) // it could do nothing here, and its ANALYZE comes when it likes
	require.NoError(t, err)

	queries, err := dialect.Postgres.Queries("outbox.sql")
	require.NoError(t, err)
	broker := &receiver{}
	source := &marking{Source: store}
	stop := forwarding(t, source, broker, outboxstore.ForwarderConfig{})
	pass := func(n int) {
		t.Helper()
		published := broker.count()
		var batch []outboxstore.Envelope
		for i := range n {
			batch = append(batch, entry("", published+i))
		}
		_, err := store.AppendOwn(t.Context(), batch...)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return broker.count() == published+n }, wait, time.Millisecond, "forwarding stands still")
	}
	for range n / 1000 {
		pass(1000)
	}
	time.Sleep(1100 * time.Millisecond) // longer than the mark lags behind the newest row that was seen
	pass(1)
	requireForwarded(t, store)
	_, err = db.Exec(`ANALYZE outbox_messages`)
	require.NoError(t, err)
	// What the running forwarder asks for, most of the time, and what it asks for once a second.
	mark := source.newest.Load() - time.Second.Microseconds()
	near := explain(t, db, queries["claim"], "o", "r", 60_000_000, 200, 50, "", 1000, mark, false).buffers
	full := explain(t, db, queries["claim"], "o", "r", 60_000_000, 200, 50, "", 1000, int64(-1)<<56, true).buffers
	stop()
	t.Logf("a claim by the mark reads %.0f buffers, one from the beginning %.0f", near, full)
	require.Less(t, 2*near, full, "a claim steps over what was forwarded")
	require.NoError(t, open.Commit())
	require.Len(t, broker.sights(), n+1)
}

// marking remembers the due time of the newest row that was claimed, as the store does.
type marking struct {
	outboxstore.Source
	newest atomic.Int64
}

func (m *marking) Claim(ctx context.Context, r outboxstore.ClaimRequest) ([]outboxstore.Claimed, error) {
	claimed, err := m.Source.Claim(ctx, r)
	for _, c := range claimed {
		m.newest.Store(max(m.newest.Load(), c.Envelope.DueAt.UnixMicro()))
	}
	return claimed, err
}
