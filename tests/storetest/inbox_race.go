package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

type answer struct {
	outcome inbox.Outcome
	err     error
}

// start delivers in a goroutine.
func (b *inboxBench) start(t *testing.T, key inbox.Key) <-chan answer {
	return ask(func() answer {
		outcome, err := b.deliver(t.Context(), key, nil)
		return answer{outcome, err}
	})
}

// hold delivers in a goroutine and returns while the handler is at work. It works until it is sent
// its result.
func (b *inboxBench) hold(t *testing.T, key inbox.Key) (first <-chan answer, release chan<- error) {
	t.Helper()
	working, result := make(chan struct{}), make(chan error, 1)
	t.Cleanup(func() {
		select {
		case result <- errPlanned: // a test that failed meanwhile leaves no goroutine behind
		default:
		}
	})
	first = ask(func() answer {
		outcome, err := b.deliver(t.Context(), key, func(context.Context) error {
			close(working)
			return <-result
		})
		return answer{outcome, err}
	})
	receive(t, working)
	return first, result
}

func secondSkips(t *testing.T, b *inboxBench) {
	first, release := b.hold(t, id("m"))
	second := b.start(t, id("m"))
	requireBlocked(t, b.bench, 1, second)
	release <- nil
	require.Equal(t, answer{inbox.Fresh, nil}, receive(t, first))
	require.Equal(t, answer{inbox.Duplicate, nil}, receive(t, second))
	b.requireEffects(t, encode(id("m")))
}

func secondRuns(t *testing.T, b *inboxBench) {
	first, release := b.hold(t, id("m"))
	second := b.start(t, id("m"))
	requireBlocked(t, b.bench, 1, second)
	release <- errPlanned
	require.ErrorIs(t, receive(t, first).err, errPlanned)
	require.Equal(t, answer{inbox.Fresh, nil}, receive(t, second))
	b.requireEffects(t, encode(id("m")))
}

// C04: one of the two runs, the other skips, and nobody sees a deadlock.
func twoWait(t *testing.T, b *inboxBench) {
	first, release := b.hold(t, id("m"))
	second, third := b.start(t, id("m")), b.start(t, id("m"))
	requireBlocked(t, b.bench, 2, second, third)
	release <- errPlanned
	require.ErrorIs(t, receive(t, first).err, errPlanned)
	require.ElementsMatch(t, []answer{{inbox.Fresh, nil}, {inbox.Duplicate, nil}}, []answer{receive(t, second), receive(t, third)})
}

// Two messages with one business key wait for one another like two copies of one message.
func businessKeyRaces(t *testing.T, b *inboxBench) {
	one, other := id("1"), id("2")
	one.IdempotencyKey, other.IdempotencyKey = "k", "k"
	first, release := b.hold(t, one)
	second := b.start(t, other)
	requireBlocked(t, b.bench, 1, second)
	release <- nil
	require.Equal(t, answer{inbox.Fresh, nil}, receive(t, first))
	require.Equal(t, answer{inbox.Duplicate, nil}, receive(t, second))
}

func manyAtOnce(t *testing.T, b *inboxBench) {
	const messages, copies = 10, 4
	var fresh sync.Map
	var all sync.WaitGroup
	for copy := range copies {
		for i := range messages {
			all.Go(func() {
				key := id(fmt.Sprint("m", i))
				key.IdempotencyKey = fmt.Sprint("k", i)
				outcome, err := b.deliver(t.Context(), key, nil)
				assert.NoError(t, err)
				if outcome == inbox.Fresh {
					_, twice := fresh.LoadOrStore(i, copy)
					assert.False(t, twice, "message %d ran twice", i)
				}
			})
		}
	}
	all.Wait()
	require.Len(t, b.effects(t), messages)
}

func othersDoNotWait(t *testing.T, b *inboxBench) {
	first, release := b.hold(t, id("m"))
	other := id("m")
	other.Consumer = "other"
	b.requireOutcome(t, inbox.Fresh, other)
	b.requireOutcome(t, inbox.Fresh, id("another"))
	release <- nil
	require.NoError(t, receive(t, first).err)
}

func inFlight(t *testing.T, b *inboxBench) {
	first, release := b.hold(t, id("m"))
	// The first one is still at work when these give up.
	for range 2 {
		require.Equal(t, answer{inbox.InFlight, inbox.ErrInFlight}, receive(t, b.start(t, id("m"))))
	}
	release <- nil
	require.Equal(t, answer{inbox.Fresh, nil}, receive(t, first))
	b.requireOutcome(t, inbox.Duplicate, id("m"))
}

// The row of a dead message is there for both; the second one waits for the first all the same, and
// no longer than for any other.
func inFlightDead(t *testing.T, b *inboxBench) {
	b.bury(t, id("m"))
	first, release := b.hold(t, id("m"))
	require.Equal(t, answer{inbox.InFlight, inbox.ErrInFlight}, receive(t, b.start(t, id("m"))))
	release <- nil
	require.Equal(t, answer{inbox.Fresh, nil}, receive(t, first))
	b.requireOutcome(t, inbox.Duplicate, id("m"))
}

// A context's end would kill the connection, and with it the transaction of somebody else.
func inFlightJoined(t *testing.T, b *inboxBench) {
	_, release := b.hold(t, id("m"))
	owners := id("of the owner")
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		if b.LockTimeout {
			require.NoError(t, b.exec(ctx, `SET LOCAL lock_timeout = '1234ms'`))
		}
		_, err := b.store.TryBegin(ctx, owners)
		require.NoError(t, err)
		conn, err := b.work.Conn(ctx)
		require.NoError(t, err)
		err = b.work.Join(uow.Detach(ctx), conn.Native(), func(ctx context.Context) error {
			outcome, err := b.store.TryBegin(ctx, id("m"))
			require.NoError(t, err)
			require.Equal(t, inbox.InFlight, outcome)
			return inbox.ErrInFlight
		})
		require.ErrorIs(t, err, inbox.ErrInFlight)
		if b.LockTimeout {
			b.requireLockTimeout(t, ctx, "1234ms")
		}
		return b.effect(ctx, encode(owners))
	}))
	release <- errPlanned
	b.requireEffects(t, encode(owners))
}

func (b *inboxBench) requireLockTimeout(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	got, err := query[string](ctx, b.work, `SELECT current_setting('lock_timeout')`)
	require.NoError(t, err)
	require.Equal(t, []string{want}, got)
}

func lockTimeoutUntouched(t *testing.T, b *inboxBench) {
	for _, kind := range []struct {
		key  inbox.Key
		bury bool
		want inbox.Outcome
	}{{id("m"), false, inbox.Fresh}, {id("m"), false, inbox.Duplicate}, {id("dead"), true, inbox.Fresh}} {
		if kind.bury {
			b.bury(t, kind.key)
		}
		require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
			require.NoError(t, b.exec(ctx, `SET LOCAL lock_timeout = '1234ms'`))
			outcome, err := b.store.TryBegin(ctx, kind.key)
			require.NoError(t, err)
			require.Equal(t, kind.want, outcome)
			b.requireLockTimeout(t, ctx, "1234ms")
			if outcome == inbox.Duplicate {
				return nil
			}
			return b.effect(ctx, encode(kind.key))
		}))
	}
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		b.requireLockTimeout(t, ctx, "0") // nor does the next transaction of the connection find it
		return nil
	}))
}

func uniqueViolation(t *testing.T, b *inboxBench) {
	b.do(t, `INSERT INTO storetest_unique (name) VALUES ('taken')`)
	insert := func(ctx context.Context) error {
		return b.exec(ctx, `INSERT INTO storetest_unique (name) VALUES ('taken')`)
	}
	outcome, err := b.deliver(t.Context(), id("m"), insert)
	require.Equal(t, inbox.Fresh, outcome)
	require.Error(t, err, "a duplicate would be acked, and the handler's work lost")
	require.Equal(t, dialect.Other, b.work.Class(err), "nothing that trying again could mend: %v", err)
	b.requireFresh(t, id("m"))
	// The handler may also deal with it, behind a savepoint.
	outcome, err = b.deliver(t.Context(), id("m"), func(ctx context.Context) error {
		if b.work.Do(ctx, insert) == nil {
			return errors.New("the name was taken")
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, inbox.Fresh, outcome)
}

// A row that was committed after the snapshot is a duplicate at Read Committed. Above it the
// transaction cannot see what it collided with; a fresh one can, and decides.
func behindSnapshot(t *testing.T, b *inboxBench) {
	try := func(ctx context.Context, key inbox.Key) (inbox.Outcome, error) {
		_, err := query[string](ctx, b.work, `SELECT name FROM storetest_effects`) // takes the snapshot
		require.NoError(t, err)
		if outcome, err := b.deliver(uow.Detach(ctx), key, nil); err != nil {
			return outcome, err
		}
		return b.store.TryBegin(ctx, key)
	}
	check := func(outcome inbox.Outcome, err error) {
		t.Helper()
		if b.snapshots() {
			require.Equal(t, dialect.Retryable, b.work.Class(err), "%v", err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, inbox.Duplicate, outcome)
	}

	runs := 0
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		runs++
		outcome, err := try(ctx, id("own"))
		if runs == 1 {
			check(outcome, err)
			return err
		}
		require.Equal(t, inbox.Duplicate, outcome)
		return err
	}, uow.Retry(5)))
	require.Equal(t, b.snapshots(), runs > 1, "runs: %d", runs)

	// Joined: the snapshot is the owner's, so is the error.
	var outcome inbox.Outcome
	err := b.work.Do(t.Context(), func(ctx context.Context) error {
		conn, err := b.work.Conn(ctx)
		require.NoError(t, err)
		return b.work.Join(uow.Detach(ctx), conn.Native(), func(ctx context.Context) (err error) {
			outcome, err = try(ctx, id("joined"))
			return err
		})
	})
	check(outcome, err)
}
