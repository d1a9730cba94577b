package e2e

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/tests/services/servicetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

var errPlanned = errors.New("planned failure")

// once is the chain of middlewares around a handler, without a router, so that a test decides what
// is delivered when.
func once(work *uow.UnitOfWork, cfg middleware.UnitOfWorkConfig, handler message.NoPublishHandlerFunc) message.HandlerFunc {
	chain := middleware.Inbox(inboxstore.New(work), middleware.InboxConfig{Consumer: func(*message.Message) string { return "racer" }})
	return middleware.UnitOfWork(work, cfg)(chain(func(msg *message.Message) ([]*message.Message, error) {
		return nil, handler(msg)
	}))
}

// A6, A7: of deliveries at the same time exactly one has an effect, at every isolation level, and
// nobody sees an error that is more than a reason to deliver again.
func TestA6_A7_RaceAtEveryIsolationLevel(t *testing.T) {
	const messages, copies, inParallel, pool = 200, 4, 6, 8
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			db := openPostgres(t, servicetest.PostgresDSN(t))
			db.SetMaxOpenConns(pool)
			work := uow.New(uow.SQLX(db), dialect.Postgres).WithIsolation(level)

			var runs [messages]atomic.Int32
			handler := once(work, middleware.UnitOfWorkConfig{}, func(msg *message.Message) error {
				var i int
				for i = range messages {
					if id(i) == msg.UUID {
						break
					}
				}
				if err := effect(msg, "racer"); err != nil {
					return err
				}
				if runs[i].Add(1) == 1 && i%5 == 0 {
					return errPlanned // after the effect: it must not survive
				}
				return nil
			})

			slots := make(chan struct{}, inParallel)
			var all sync.WaitGroup
			for i := range messages {
				slots <- struct{}{}
				all.Go(func() {
					defer func() { <-slots }()
					var group sync.WaitGroup
					for range copies {
						group.Go(func() { deliverUntilAcked(t, handler, i) })
					}
					group.Wait()
				})
				// The pool must give a connection within the bound of a lock wait at any time.
				ctx, cancel := context.WithTimeout(t.Context(), inboxstore.DefaultLockWait)
				assert.NoError(t, db.PingContext(ctx))
				cancel()
			}
			all.Wait()
			requireOnce(t, db, "racer", messages)
			require.Zero(t, db.Stats().InUse)
		})
	}
}

func deliverUntilAcked(t *testing.T, handler message.HandlerFunc, i int) {
	for {
		_, err := handler(delivery(t.Context(), i))
		if err == nil {
			return
		}
		if !errors.Is(err, errPlanned) && !errors.Is(err, inbox.ErrInFlight) {
			assert.NoError(t, err, "only these two are reasons to deliver again")
			return
		}
	}
}
