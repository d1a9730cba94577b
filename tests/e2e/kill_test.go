package e2e

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// A8, A19: the connection dies before, during and after COMMIT, 100 times each, under load. Every
// delivery is made until it is acked, and once more, as a broker does that lost the ack.
func TestA8_A19_ConnectionKilledAroundCommit(t *testing.T) {
	const kills, workers = 100, 8
	dsn := servicetest.PostgresDSN(t)
	direct := openPostgres(t, dsn)
	proxy, through := newCommitProxy(t, dsn, direct.DB)
	db := openPlain(t, through)
	db.SetMaxOpenConns(workers)
	work := uow.New(uow.SQLX(db), dialect.Postgres)
	handler := once(work, middleware.UnitOfWorkConfig{WaitInitial: 5 * time.Millisecond, WaitMax: 50 * time.Millisecond},
		func(msg *message.Message) error { return effect(msg, "racer") })

	var mu sync.Mutex
	next := 0
	// take hands out the next message, and arms the proxy for a kill that is still missing.
	take := func() (i int, more bool) {
		mu.Lock()
		defer mu.Unlock()
		missing := false
		for _, m := range []moment{before, during, after} {
			if proxy.killed[m].Load() < kills {
				missing = true
				if rand.IntN(3) == 0 {
					proxy.next.CompareAndSwap(int32(never), int32(m))
				}
			}
		}
		if missing {
			next++
		}
		return next - 1, missing
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				i, more := take()
				if !more {
					return
				}
				for deliveries := 0; deliveries < 2; {
					if _, err := handler(delivery(t.Context(), i)); err == nil {
						deliveries++
					}
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d messages; killed before COMMIT %d, during %d, after %d", next,
		proxy.killed[before].Load(), proxy.killed[during].Load(), proxy.killed[after].Load())
	requireOnce(t, direct, "racer", next)
	require.Zero(t, db.Stats().InUse)
}
