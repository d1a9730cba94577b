package middleware_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// A retry inside the transaction would go on in what the failure left of it.
func TestA12_RetryOutsideGetsAFreshTransaction(t *testing.T) {
	b := newBench(t)
	seen := map[*sql.Tx]bool{}
	retry := wm.Retry{MaxRetries: 3, InitialInterval: time.Millisecond, ShouldRetry: middleware.ShouldRetry}
	s := start(t, func(msg *message.Message) error {
		tx, err := uow.Tx[*sql.Tx](msg.Context())
		require.NoError(t, err)
		seen[tx] = true
		if err := effect(msg); err != nil {
			return err
		}
		switch len(seen) {
		case 1:
			return errPlanned
		case 2:
			panic(errPlanned)
		}
		return nil
	}, b.chain(retry.Middleware, middleware.Recover)...)
	require.True(t, s.deliver(t, "m", ""))
	require.Len(t, seen, 3)
	b.requireEffects(t, "m")
	b.requireCounts(t, "consumer", map[string]int64{"watermill_inbox.handled": 1, "watermill_inbox.failed": 1})
}

// A16: an in-process broker hands on the publisher's context, which may carry its transaction.
func TestA16_DeliveryDoesNotJoinWhatItsContextCarries(t *testing.T) {
	b := newBench(t)
	msg := message.NewMessage("m", nil)
	var publisher context.Context
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		publisher = ctx
		return nil
	}))
	msg.SetContext(publisher) // its transaction has ended meanwhile: joining it would fail
	_, err := b.once(nothing(effect))(msg)
	require.NoError(t, err)
	require.Equal(t, publisher, msg.Context())
	b.requireEffects(t, "m")
}

// A5: a time-out of the user's own rolls back, and is an error like any other.
func TestA5_EndOfTheContextRollsBack(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	msg := message.NewMessageWithContext(ctx, "m", nil)
	handler := middleware.Interrupted(b.once(nothing(func(msg *message.Message) error {
		require.NoError(t, effect(msg))
		cancel()
		return nil
	})))
	_, err := handler(msg)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, inbox.ErrInterrupted, "the delivery itself is over: that is nobody's fault")
	b.requireEffects(t)

	timeout := middleware.Recover(wm.Timeout(200 * time.Millisecond)(b.once(nothing(func(msg *message.Message) error {
		require.NoError(t, effect(msg))
		<-msg.Context().Done()
		return nil
	}))))
	err = call(t, timeout, "m")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, inbox.ErrInterrupted)
	b.requireEffects(t)
}

// A7: a busy database is asked again in a fresh transaction, a bounded number of times.
func TestA7_BusyDatabaseIsAskedAgain(t *testing.T) {
	b := newBench(t)
	for _, test := range []struct{ retries, busy, runs int }{{0, 2, 3}, {1, 1, 2}, {1, 2, 2}} {
		b.uowCfg.Retries = test.retries
		runs := 0
		err := call(t, b.once(nothing(func(msg *message.Message) error {
			if runs++; runs <= test.busy {
				return engineError(5)
			}
			return nil
		})), "m"+string(rune('0'+test.retries))+string(rune('0'+test.busy)))
		require.Equal(t, test.runs, runs)
		if test.runs > test.busy {
			require.NoError(t, err)
		} else {
			require.Equal(t, engineError(5), err)
		}
	}
}

// engineError is an error with a result code of SQLite's.
type engineError int

func (engineError) Error() string { return "an error of the engine" }
func (e engineError) Code() int   { return int(e) }

func TestA10_ReturnedMessagesAreStagedInTheTransaction(t *testing.T) {
	b := newBench(t)
	stage := &stager{}
	outbox := middleware.Outbox(stage)
	returns := func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("1", nil), message.NewMessage("2", nil)}, effect(msg)
	}
	require.ErrorIs(t, call(t, b.once(outbox(returns)), "m"), middleware.ErrNoPublishTopic)
	require.Zero(t, stage.calls)
	b.requireEffects(t)

	r, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	s := &source{out: make(chan *message.Message)}
	r.AddMiddleware(b.chain(outbox)...) // outbox belongs inside: here it finds no transaction
	r.AddHandler("handler", "topic", s, "published", forbidden{t}, returns)
	runRouter(t, r)
	stage.err = nil
	require.False(t, s.deliver(t, "outside", ""), "staged without a transaction")

	r, err = message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	s = &source{out: make(chan *message.Message)}
	r.AddMiddleware(append(b.chain(), outbox)...)
	r.AddHandler("handler", "topic", s, "published", forbidden{t}, returns)
	runRouter(t, r)
	stage.err = errPlanned
	require.False(t, s.deliver(t, "m", ""), "what cannot be staged must not be committed")
	stage.err = nil
	require.True(t, s.deliver(t, "m", ""))
	require.True(t, s.deliver(t, "m", ""))
	require.Equal(t, []string{"published/1", "published/2"}, stage.staged, "and once only")
	require.Equal(t, []string{"m"}, b.column(t, `SELECT message_id FROM inbox_messages WHERE message_id = 'm'`))

	stage.calls = 0
	require.Equal(t, errPlanned, call(t, b.once(outbox(func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("3", nil)}, errPlanned
	})), "failed"))
	require.NoError(t, call(t, b.once(outbox(nothing(effect))), "silent"))
	require.Zero(t, stage.calls, "a failed handler has nothing to say, a silent one neither")
}

// stager keeps what is staged, and insists on a transaction.
type stager struct {
	err    error
	calls  int
	staged []string
}

func (s *stager) Stage(ctx context.Context, topic string, messages ...*message.Message) error {
	s.calls++
	if _, err := uow.Tx[*sql.Tx](ctx); err != nil {
		return err
	}
	if s.err != nil {
		return s.err
	}
	for _, msg := range messages {
		s.staged = append(s.staged, topic+"/"+msg.UUID)
	}
	return nil
}

func runRouter(t *testing.T, r *message.Router) {
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(context.Background()) }()
	<-r.Running()
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		require.NoError(t, <-stopped)
	})
}
