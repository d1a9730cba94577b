package middleware_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// flaky is a database that is away at times. Each counter says how often its operation fails yet;
// -1 is for ever.
type flaky struct {
	uow.Beginner
	fault               error
	begin, commit, ping atomic.Int32
	begun               atomic.Int32
}

func newFlaky(b *bench) *flaky {
	f := &flaky{Beginner: uow.SQL(b.db), fault: &net.OpError{Op: "dial", Err: io.EOF}}
	b.on(f)
	return f
}

// due takes one failure off a counter and says whether there was one.
func due(left *atomic.Int32) bool {
	for {
		n := left.Load()
		if n <= 0 {
			return n < 0
		}
		if left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

func (f *flaky) Begin(ctx context.Context, opts sql.TxOptions) (uow.Conn, error) {
	f.begun.Add(1)
	if due(&f.begin) {
		return nil, f.fault
	}
	conn, err := f.Beginner.Begin(ctx, opts)
	return flakyConn{conn, f}, err
}

func (f *flaky) Ping(ctx context.Context) error {
	if due(&f.ping) {
		return f.fault
	}
	return f.Beginner.Ping(ctx)
}

type flakyConn struct {
	uow.Conn
	of *flaky
}

func (c flakyConn) Commit(ctx context.Context) error {
	if due(&c.of.commit) {
		return errors.Join(driver.ErrBadConn, c.Rollback(ctx))
	}
	return c.Conn.Commit(ctx)
}

// The wait is inside retry and dead letter, which must not see it.
func TestA19_DatabaseThatIsAwayIsWaitedFor(t *testing.T) {
	for name, fault := range map[string]error{
		"unreachable": &net.OpError{Op: "dial", Err: io.EOF},
		"no conn":     driver.ErrBadConn,
		"read-only":   engineError(8),
		"disk full":   engineError(13),
		"any other":   errPlanned, // a transaction that cannot begin is never the message's fault
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			f := newFlaky(b)
			f.fault = fault
			f.begin.Store(7)
			retry := wm.Retry{MaxRetries: 1, InitialInterval: time.Hour, ShouldRetry: middleware.ShouldRetry}
			poison, err := wm.PoisonQueueWithFilter(forbidden{t}, "dead", middleware.ShouldDeadLetter)
			require.NoError(t, err)
			s := start(t, effect, b.chain(poison, retry.Middleware, middleware.Recover)...)
			require.True(t, s.deliver(t, "m", ""))
			require.Equal(t, int32(8), f.begun.Load())
			b.requireEffects(t, "m")
			require.Equal(t, 1, b.log.Count("error", "Database is away", "message_uuid=m", "consumer=consumer", "next_try_in="),
				"one line in ten seconds, not one a try: %s", b.log)
			b.requireCounts(t, "consumer", map[string]int64{"watermill_inbox.handled": 1})
		})
	}
}

func TestA19_WaitEndsWithTheDeliveryOrTheRouter(t *testing.T) {
	b := newBench(t)
	f := newFlaky(b)
	f.begin.Store(-1)
	closing := make(chan struct{})
	b.uowCfg.Closing = closing
	b.uowCfg.WaitInitial, b.uowCfg.WaitMax = time.Hour, time.Hour
	handler := b.once(nothing(effect))

	for name, end := range map[string]func(cancel func()){
		"delivery": func(cancel func()) { cancel() },
		"router":   func(func()) { close(closing) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			before := f.begun.Load()
			result := make(chan error, 1)
			go func() {
				_, err := handler(message.NewMessageWithContext(ctx, "m", nil))
				result <- err
			}()
			require.Eventually(t, func() bool { return f.begun.Load() > before }, wait, time.Millisecond)
			end(cancel)
			select {
			case err := <-result:
				// Which of the two is seen first depends on where the context's end meets it.
				require.True(t, errors.Is(err, inbox.ErrInterrupted) || errors.Is(err, context.Canceled), "%v", err)
			case <-time.After(wait):
				require.FailNow(t, "still waiting")
			}
		})
	}
}

// A handler that idles longer than the server lets it loses its connection every time. Waiting for
// the database to come back would be waiting for ever.
func TestA19_ConnectionLostThreeTimesIsCharged(t *testing.T) {
	b := newBench(t)
	f := newFlaky(b)
	f.commit.Store(-1)
	runs := 0
	err := call(t, b.once(nothing(func(msg *message.Message) error { runs++; return effect(msg) })), "m")
	require.ErrorIs(t, err, uow.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "was lost 3 times")
	require.False(t, inbox.Transient(err), "the retry policy and the dead-letter path are to see it")
	require.Equal(t, 3, runs)
	b.requireEffects(t)

	f.commit.Store(2) // one fewer is the network's fault
	require.NoError(t, call(t, b.once(nothing(effect)), "m"))
	b.requireEffects(t, "m")
}

// A8: the commit went through although its answer did not: the row says so to the next try.
func TestA8_LostAnswerOfACommitIsNoSecondEffect(t *testing.T) {
	b := newBench(t)
	f := newFlaky(b)
	lost := &losesAnswer{flaky: f}
	b.on(lost)
	lost.left.Store(1)
	runs := 0
	require.NoError(t, call(t, b.once(nothing(func(msg *message.Message) error { runs++; return effect(msg) })), "m"))
	require.Equal(t, 1, runs)
	b.requireEffects(t, "m")
}

type losesAnswer struct {
	*flaky
	left atomic.Int32
}

func (l *losesAnswer) Begin(ctx context.Context, opts sql.TxOptions) (uow.Conn, error) {
	conn, err := l.flaky.Begin(ctx, opts)
	return answerless{conn, l}, err
}

type answerless struct {
	uow.Conn
	of *losesAnswer
}

func (c answerless) Commit(ctx context.Context) error {
	err := c.Conn.Commit(ctx)
	if due(&c.of.left) {
		return errors.Join(err, driver.ErrBadConn)
	}
	return err
}

// A call to another service that fails is the handler's error, while the database is well; while
// it is not, nobody can tell, and the delivery is held.
func TestA19_NetworkErrorOfTheHandlersOwn(t *testing.T) {
	b := newBench(t)
	f := newFlaky(b)
	own := &net.OpError{Op: "dial", Err: errors.New("the other service is away")}
	runs := 0
	err := call(t, b.once(nothing(func(*message.Message) error { runs++; return own })), "m")
	require.Equal(t, own, err)
	require.Equal(t, 1, runs)
	require.Zero(t, b.log.Count("error"))

	f.ping.Store(3)
	runs = 0
	require.Equal(t, own, call(t, b.once(nothing(func(*message.Message) error { runs++; return own })), "m"))
	require.Equal(t, 4, runs)
}

// The inbox itself is not there yet: the handler has not run, so it is not to blame.
func TestA19_StoreThatFailsIsWaitedFor(t *testing.T) {
	b := newBench(t)
	_, err := b.db.Exec(`ALTER TABLE inbox_messages RENAME TO elsewhere`)
	require.NoError(t, err)
	result := make(chan error, 1)
	handler := b.once(nothing(effect))
	go func() {
		_, err := handler(message.NewMessageWithContext(t.Context(), "m", nil))
		result <- err
	}()
	require.Eventually(t, func() bool { return b.log.Has("error", "Tables are missing", "no such table") }, wait, time.Millisecond)
	_, err = b.db.Exec(`ALTER TABLE elsewhere RENAME TO inbox_messages`)
	require.NoError(t, err)
	require.NoError(t, <-result)
	b.requireEffects(t, "m")
}

// What cannot be mended by waiting does not wait, even if the database is away as well.
func TestA19_ErrorsThatAreNotInfrastructure(t *testing.T) {
	b := newBench(t)
	f := newFlaky(b)
	f.ping.Store(-1)
	for _, fault := range []error{inbox.ErrInFlight, inbox.ErrPhantom, inbox.ErrInterrupted} {
		wrapped := fmt.Errorf("somewhere: %w", fault)
		require.Equal(t, wrapped, call(t, b.once(nothing(func(*message.Message) error { return wrapped })), "m"))
	}
}
