package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// size is a number of rows: a small one, or the full one when WATERMILL_INBOX_FULL is set.
func size(small, full int) int {
	if os.Getenv("WATERMILL_INBOX_FULL") != "" {
		return full
	}
	return small
}

func newOutbox(db *sqlx.DB) *outboxstore.Store {
	return outboxstore.New(uow.New(uow.SQLX(db), dialect.Postgres))
}

// entry makes row n of an ordering key, none when it is "".
func entry(key string, n int) outboxstore.Envelope {
	return outboxstore.Envelope{
		Topic: "topic", OrderingKey: key, Message: message.NewMessage(fmt.Sprintf("%s/%d", key, n), []byte(`{"n":1}`)),
	}
}

// appendEntries appends rows 0 to perKey-1 of each key, in turns.
func appendEntries(t testing.TB, store *outboxstore.Store, keys []string, perKey int) {
	t.Helper()
	var batch []outboxstore.Envelope
	for n := range perKey {
		for _, key := range keys {
			batch = append(batch, entry(key, n))
		}
	}
	_, err := store.AppendOwn(context.Background(), batch...)
	require.NoError(t, err)
}

func orderingKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%04d", i)
	}
	return keys
}

// forwarding runs a forwarder until the test or stop ends it.
func forwarding(t *testing.T, source outboxstore.Source, publisher message.Publisher, cfg outboxstore.ForwarderConfig) (stop func()) {
	t.Helper()
	f, err := outboxstore.NewForwarder(source, publisher, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// receiver is a broker that remembers in which order it saw the messages.
type receiver struct {
	// refuse, unless nil, is asked first.
	refuse func(msg *message.Message) error

	tries atomic.Int64
	mu    sync.Mutex
	seen  []string
}

func (r *receiver) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		r.tries.Add(1)
		if r.refuse != nil {
			if err := r.refuse(msg); err != nil {
				return err
			}
		}
		r.mu.Lock()
		r.seen = append(r.seen, msg.UUID)
		r.mu.Unlock()
	}
	return nil
}

func (r *receiver) Close() error { return nil }

func (r *receiver) sights() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.seen...)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// requireOrder checks that each key's rows were first seen in the order in which they were
// appended, and gives how many messages were seen more than once.
func requireOrder(t *testing.T, sights []string, keys []string, perKey int) (repeated []string) {
	t.Helper()
	next := make(map[string]int, len(keys))
	seen := make(map[string]bool, len(sights))
	for _, id := range sights {
		if seen[id] {
			repeated = append(repeated, id)
			continue
		}
		seen[id] = true
		for i := len(id) - 1; ; i-- {
			if id[i] == '/' {
				require.Equal(t, fmt.Sprint(next[id[:i]]), id[i+1:], "of %s", id[:i])
				next[id[:i]]++
				break
			}
		}
	}
	for _, key := range keys {
		require.Equal(t, perKey, next[key], "messages of %s", key)
	}
	return repeated
}

// requireForwarded checks that nothing waits, is held or dead.
func requireForwarded(t *testing.T, store *outboxstore.Store) {
	t.Helper()
	require.Eventually(t, func() bool {
		stats, err := store.Stats(context.Background())
		require.NoError(t, err)
		stats.OldestAge = 0
		return stats == outboxstore.Stats{}
	}, 4*wait, wait/200, "rows are left")
}

// openPostgresDSN is openPostgres, and says how to get there.
func openPostgresDSN(t *testing.T) (*sqlx.DB, string) {
	dsn := servicetest.PostgresDSN(t)
	return openPostgres(t, dsn), dsn
}

// withParameter adds a parameter to a connection string.
func withParameter(t *testing.T, dsn, name, value string) string {
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	parameters := address.Query()
	parameters.Set(name, value)
	address.RawQuery = parameters.Encode()
	return address.String()
}
