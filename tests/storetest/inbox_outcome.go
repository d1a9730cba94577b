package storetest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

var errPlanned = errors.New("planned failure")

func together(t *testing.T, b *inboxBench) {
	_, err := b.deliver(t.Context(), id("m"), func(context.Context) error { return errPlanned })
	require.ErrorIs(t, err, errPlanned)
	b.requireEffects(t)
	b.requireFresh(t, id("m"))
	b.requireOutcome(t, inbox.Fresh, id("m"))
	b.requireEffects(t, encode(id("m")))
}

// C10: on Postgres the COMMIT of a spoilt transaction is a rollback that some layers call success.
func swallowedError(t *testing.T, b *inboxBench) {
	b.do(t, `INSERT INTO storetest_unique (name) VALUES ('taken')`)
	outcome, err := b.deliver(t.Context(), id("m"), func(ctx context.Context) error {
		require.Error(t, b.exec(ctx, `INSERT INTO storetest_unique (name) VALUES ('taken')`))
		return nil
	})
	require.Equal(t, inbox.Fresh, outcome)
	if !b.AbortsOnError {
		require.NoError(t, err)
		b.requireEffects(t, encode(id("m")))
		return
	}
	var op *uow.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "commit", op.Op)
	require.NotErrorIs(t, err, uow.ErrOutcomeUnknown, "the server has answered")
	require.Equal(t, dialect.Other, b.work.Class(err), "this is the handler's fault: %v", err)
	b.requireEffects(t)
	b.requireOutcome(t, inbox.Fresh, id("m"))
}

// C11: every statement succeeds and COMMIT fails.
func failedCommit(t *testing.T, b *inboxBench) {
	b.do(t, `CREATE TABLE storetest_parent (id integer PRIMARY KEY)`)
	b.do(t, `CREATE TABLE storetest_child (parent integer REFERENCES storetest_parent (id) DEFERRABLE INITIALLY DEFERRED)`)
	hooks := 0
	outcome, err := b.deliver(t.Context(), id("m"), func(ctx context.Context) error {
		require.NoError(t, uow.AfterCommit(ctx, func() { hooks++ }))
		return b.exec(ctx, `INSERT INTO storetest_child (parent) VALUES (1)`)
	})
	require.Equal(t, inbox.Fresh, outcome)
	var op *uow.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "commit", op.Op)
	require.Equal(t, dialect.Other, b.work.Class(err))
	require.Zero(t, hooks)
	b.requireEffects(t)
	b.requireOutcome(t, inbox.Fresh, id("m"))
}

func noTransaction(t *testing.T, b *inboxBench) {
	_, err := b.store.TryBegin(t.Context(), id("m"))
	require.ErrorIs(t, err, uow.ErrNoTransaction)
	// C29: a transaction of another database is none.
	require.NoError(t, uow.NewMemory().Do(t.Context(), func(ctx context.Context) error {
		_, err := b.store.TryBegin(ctx, id("m"))
		require.ErrorIs(t, err, uow.ErrNoTransaction)
		return nil
	}))
	b.requireFresh(t, id("m"))
}

func processed(t *testing.T, b *inboxBench) {
	b.requireFresh(t, id("m"))
	b.requireOutcome(t, inbox.Fresh, id("m"))
	for range 3 {
		b.requireOutcome(t, inbox.Duplicate, id("m"))
	}
	b.requireEffects(t, encode(id("m")))
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		for _, want := range []inbox.Outcome{inbox.Fresh, inbox.Duplicate} { // its own row counts as well
			outcome, err := b.store.TryBegin(ctx, id("twice in one transaction"))
			require.NoError(t, err)
			require.Equal(t, want, outcome)
		}
		return b.effect(ctx, encode(id("twice in one transaction")))
	}))
}

func (b *inboxBench) bury(t *testing.T, key inbox.Key) {
	t.Helper()
	burier, ok := b.store.(Burier)
	if !ok {
		t.Skip("the store keeps no dead messages")
	}
	require.NoError(t, burier.Bury(t.Context(), inbox.Dead{
		Consumer: key.Consumer, MessageID: key.MessageID, Topic: "topic", Payload: []byte("{}"),
		Metadata: map[string]string{"k": "v"}, Error: "broken",
	}))
}

// C08: a message that was mended and sent again must work, or replaying does nothing.
func dead(t *testing.T, b *inboxBench) {
	b.bury(t, id("m"))
	b.bury(t, id("m"))
	for range 2 { // a failure leaves it dead
		outcome, err := b.deliver(t.Context(), id("m"), func(context.Context) error { return errPlanned })
		require.ErrorIs(t, err, errPlanned)
		require.Equal(t, inbox.Fresh, outcome)
	}
	gone, err := b.store.Abandon(t.Context(), id("m"))
	require.NoError(t, err)
	require.True(t, gone, "a dead row does not keep the message from being handled")
	b.requireOutcome(t, inbox.Fresh, id("m"))
	b.requireOutcome(t, inbox.Duplicate, id("m"))
	b.requireEffects(t, encode(id("m")))

	purger, ok := b.store.(Purger)
	if !ok {
		return
	}
	b.bury(t, id("kept"))
	_, err = b.deliver(t.Context(), id("kept"), func(context.Context) error { return errPlanned })
	require.ErrorIs(t, err, errPlanned)
	require.Eventually(t, func() bool {
		n, err := purger.Purge(t.Context(), inboxstore.Retention{Dead: time.Microsecond}, 10)
		require.NoError(t, err)
		return n == 1
	}, patience, time.Millisecond, "the failure took the dead row with it")
}

// A dead message that comes again is under its business key as any other is.
func deadBusinessKey(t *testing.T, b *inboxBench) {
	key := func(messageID, key string) inbox.Key {
		return inbox.Key{Consumer: "consumer", MessageID: messageID, Tenant: "tenant", IdempotencyKey: key}
	}
	b.bury(t, id("mended"))
	b.requireOutcome(t, inbox.Fresh, key("mended", "k"))
	b.requireOutcome(t, inbox.Duplicate, key("again", "k"))

	b.bury(t, id("late"))
	b.requireOutcome(t, inbox.Fresh, key("early", "other"))
	b.requireOutcome(t, inbox.Duplicate, key("late", "other"))
}

func buryHandled(t *testing.T, b *inboxBench) {
	b.requireOutcome(t, inbox.Fresh, id("m"))
	b.bury(t, id("m"))
	b.requireOutcome(t, inbox.Duplicate, id("m"))
}

func abandoned(t *testing.T, b *inboxBench) {
	ctx, cancel := context.WithCancel(t.Context())
	failures := map[string]func(context.Context) error{
		"error":      func(context.Context) error { return errPlanned },
		"panic":      func(context.Context) error { panic("planned") },
		"goexit":     func(context.Context) error { runtime.Goexit(); return nil },
		"end of ctx": func(context.Context) error { cancel(); return nil },
		"rollback only": func(ctx context.Context) error {
			return b.work.Do(ctx, func(context.Context) error { return errPlanned })
		},
	}
	for name, fail := range failures {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, err := b.deliver(ctx, id(name), fail)
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}()
		receive(t, done)
		gone, err := b.store.Abandon(t.Context(), id(name))
		require.NoError(t, err)
		require.True(t, gone, name)
		b.requireFresh(t, id(name))
		ctx, cancel = context.WithCancel(t.Context())
	}
	cancel()
	b.requireEffects(t)
	b.requireOutcome(t, inbox.Fresh, id("error"))
	gone, err := b.store.Abandon(t.Context(), id("error"))
	require.NoError(t, err)
	require.False(t, gone, "the row stands")
}

// The row, looked up afterwards, is what tells a commit of the handler's own from a rollback.
func endsItself(t *testing.T, b *inboxBench) {
	for name, committed := range map[string]bool{"commits": true, "rolls back": false} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			_, err := b.deliver(t.Context(), id(name), func(ctx context.Context) error {
				require.NoError(t, uow.Confirm(ctx, func(ctx context.Context) (bool, error) {
					asked++
					gone, err := b.store.Abandon(ctx, id(name))
					return !gone, err
				}))
				conn, err := b.work.Conn(ctx)
				require.NoError(t, err)
				if committed {
					return conn.Commit(ctx)
				}
				return conn.Rollback(ctx)
			})
			require.Equal(t, 1, asked)
			if committed {
				require.NoError(t, err)
				b.requireOutcome(t, inbox.Duplicate, id(name))
			} else {
				require.ErrorIs(t, err, uow.ErrEnded)
				b.requireFresh(t, id(name))
			}
		})
	}
}

// joined runs a delivery in a transaction whose owner decides.
func joined(t *testing.T, b *inboxBench) {
	deliver := func(ctx context.Context, fail error) error {
		conn, err := b.work.Conn(ctx)
		require.NoError(t, err)
		return b.work.Join(uow.Detach(ctx), conn.Native(), func(ctx context.Context) error {
			outcome, err := b.store.TryBegin(ctx, id("m"))
			require.NoError(t, err)
			require.Equal(t, inbox.Fresh, outcome)
			return errors.Join(b.effect(ctx, encode(id("m"))), fail)
		})
	}
	err := b.work.Do(t.Context(), func(ctx context.Context) error {
		require.NoError(t, deliver(ctx, nil))
		return errPlanned
	})
	require.ErrorIs(t, err, errPlanned)
	b.requireFresh(t, id("m"))
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, deliver(ctx, errPlanned), errPlanned)
		return deliver(ctx, nil) // the transaction is usable, and the row of the failure is gone
	}))
	b.requireOutcome(t, inbox.Duplicate, id("m"))
}
