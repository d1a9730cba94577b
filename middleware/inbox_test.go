package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// chain is UnitOfWork and Inbox as router middlewares.
func (b *bench) chain(outer ...message.HandlerMiddleware) []message.HandlerMiddleware {
	return append(outer, middleware.UnitOfWork(b.work, b.uowCfg), middleware.Inbox(b.store, b.cfg))
}

func TestA4_RedeliveryIsAckedWithoutTheHandler(t *testing.T) {
	b := newBench(t)
	s := start(t, effect, b.chain()...)
	require.True(t, s.deliver(t, "m", ""))
	require.True(t, s.deliver(t, "m", ""))
	require.True(t, s.deliver(t, "other", ""))
	b.requireEffects(t, "m", "other")
	b.requireCounts(t, "consumer", map[string]int64{"watermill_inbox.handled": 2, "watermill_inbox.skipped": 1})
	require.Equal(t, 1, b.log.Count("debug", "skipped", "message_uuid=m", "consumer=consumer"))
}

// A2: the business key comes from the configuration, as does the id.
func TestA1_A2_KeyFromTheConfiguration(t *testing.T) {
	b := newBench(t)
	b.cfg.Consumer = func(*message.Message) string { return "billing" }
	b.cfg.MessageID = func(msg *message.Message) string { return string(msg.Payload) }
	b.cfg.IdempotencyKey = func(msg *message.Message) (string, string) { return "tenant", msg.Metadata.Get("order") }
	runs := 0
	handler := b.once(nothing(func(*message.Message) error { runs++; return nil }))
	for _, d := range []struct{ payload, order string }{{"1", "a"}, {"1", "b"}, {"2", "a"}, {"3", "c"}, {"4", ""}, {"5", ""}} {
		msg := message.NewMessageWithContext(t.Context(), "same", []byte(d.payload))
		msg.Metadata.Set("order", d.order)
		_, err := handler(msg)
		require.NoError(t, err)
	}
	require.Equal(t, 4, runs, "1, 3, 4 and 5")
	require.Equal(t, []string{"billing/1/tenant/a", "billing/3/tenant/c", "billing/4/tenant/-", "billing/5/tenant/-"},
		b.column(t, `SELECT consumer || '/' || message_id || '/' || tenant_id || '/' || coalesce(idempotency_key, '-') FROM inbox_messages ORDER BY 1`))
	b.requireCounts(t, "billing", map[string]int64{"watermill_inbox.handled": 4, "watermill_inbox.skipped": 2})
}

func TestA5_FailedHandlerRunsAgain(t *testing.T) {
	b := newBench(t)
	failures := []func(){func() {}, func() { panic("planned") }, func() { panic(errPlanned) }, func() { panic(42) }}
	run := 0
	s := start(t, func(msg *message.Message) error {
		if err := effect(msg); err != nil {
			return err
		}
		if run++; run <= len(failures) {
			failures[run-1]()
			return errPlanned
		}
		return nil
	}, b.chain(middleware.Recover)...)
	for range failures {
		require.False(t, s.deliver(t, "m", ""))
		b.requireEffects(t)
	}
	require.True(t, s.deliver(t, "m", ""))
	require.True(t, s.deliver(t, "m", ""))
	b.requireEffects(t, "m")
}

// C21: a connection that a panic leaves open would be missed by the third message at the latest.
func TestA5_PanicsLeaveNoConnectionOpen(t *testing.T) {
	b := newBench(t)
	b.db.SetMaxOpenConns(2)
	s := start(t, func(msg *message.Message) error {
		if err := effect(msg); err != nil || msg.UUID == "good" {
			return err
		}
		panic(msg.UUID)
	}, b.chain(middleware.Recover)...)
	for i := range 20 {
		require.False(t, s.deliver(t, fmt.Sprint("bad", i), ""))
	}
	require.True(t, s.deliver(t, "good", ""))
	b.requireEffects(t, "good")
}

// Two instances of one consumer get the same message at the same time.
func TestA6_TwoDeliveriesAtOnce(t *testing.T) {
	b := newBench(t)
	b.cfg.Consumer = func(*message.Message) string { return "consumer" }
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	r, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	r.AddMiddleware(b.chain()...)
	for _, instance := range []string{"one", "two"} {
		r.AddConsumerHandler(instance, "topic", broker, effect)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(context.Background()) }()
	<-r.Running()
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprint("m", i))
		require.NoError(t, broker.Publish("topic", message.NewMessage(want[i], nil)))
	}
	require.NoError(t, r.Close())
	require.NoError(t, <-stopped)
	require.NoError(t, broker.Close())
	b.requireEffects(t, want...)
	b.requireCounts(t, "consumer", map[string]int64{"watermill_inbox.handled": 30, "watermill_inbox.skipped": 30})
}

// stub is a store that always answers the same.
type stub struct {
	outcome inbox.Outcome
	err     error
}

func (s stub) TryBegin(context.Context, inbox.Key) (inbox.Outcome, error) { return s.outcome, s.err }
func (stub) Complete(context.Context, inbox.Key) error                    { return nil }
func (stub) Abandon(context.Context, inbox.Key) (bool, error)             { return true, nil }

func TestA4_InFlightGoesBackToTheBroker(t *testing.T) {
	b := newBench(t)
	tries := 0
	retry := wm.Retry{MaxRetries: 5, InitialInterval: time.Hour, ShouldRetry: middleware.ShouldRetry}
	poison, err := wm.PoisonQueueWithFilter(forbidden{t}, "poison", middleware.ShouldDeadLetter)
	require.NoError(t, err)
	count := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { tries++; return next(msg) }
	}
	s := start(t, func(*message.Message) error { t.Error("the handler ran"); return nil },
		poison, retry.Middleware, count, middleware.UnitOfWork(b.work, b.uowCfg), middleware.Inbox(stub{outcome: inbox.InFlight}, b.cfg))
	require.False(t, s.deliver(t, "m", ""))
	require.Equal(t, 1, tries)
	b.requireCounts(t, "consumer", map[string]int64{"watermill_inbox.in_flight": 1})
}

// forbidden is a publisher that nothing may reach.
type forbidden struct{ t *testing.T }

func (p forbidden) Publish(string, ...*message.Message) error {
	p.t.Error("the message was dead-lettered")
	return nil
}
func (forbidden) Close() error { return nil }

func TestA12_WrongOrderIsLoud(t *testing.T) {
	b := newBench(t)
	b.cfg.Consumer = func(*message.Message) string { return "consumer" }
	handler := middleware.Inbox(b.store, b.cfg)(middleware.UnitOfWork(b.work, b.uowCfg)(nothing(effect)))
	require.ErrorIs(t, call(t, handler, "m"), uow.ErrNoTransaction)
	handler = middleware.Inbox(b.store, b.cfg)(nothing(effect))
	require.ErrorIs(t, call(t, handler, "m"), uow.ErrNoTransaction)
	other := uow.NewMemory() // the unit of work of another database
	handler = middleware.UnitOfWork(other, b.uowCfg)(middleware.Inbox(b.store, b.cfg)(nothing(effect)))
	require.ErrorIs(t, call(t, handler, "m"), uow.ErrNoTransaction)
	b.requireEffects(t)
}

func TestA11_MissingIdIsBuriedAndAcked(t *testing.T) {
	b := newBench(t)
	s := start(t, func(*message.Message) error { t.Error("the handler ran"); return nil },
		b.chain(middleware.Bury(b.store, b.cfg), middleware.Recover)...)
	bad := []string{"", strings.Repeat("x", 256), "a\x00b", "\xc1\xbe"}
	for _, id := range bad {
		require.True(t, s.deliver(t, id, "payload"), "%+q", id)
	}
	require.Equal(t, []string{"4/topic/payload/invalid-"}, b.column(t, `
		SELECT count(*) || '/' || topic || '/' || payload || '/' || substr(message_id, 1, 8) FROM inbox_messages WHERE state = 'dead'`))
	require.Equal(t, []string{"34"}, b.column(t, `SELECT DISTINCT length(message_id) FROM inbox_messages`), "invalid- and a ULID")
	b.requireCounts(t, "consumer", map[string]int64{"watermill_inbox.dead": 4})
	require.Equal(t, 4, b.log.Count("error", "dead inbox row", "consumer=consumer", "topic=topic", "message_uuid=invalid-"))
	require.NotContains(t, b.log.String(), strings.Repeat("x", 256))
}

// What is not about the id goes on to the retry policy and the dead-letter path.
func TestA11_BuryLeavesOtherErrorsAlone(t *testing.T) {
	b := newBench(t)
	// The last one is the handler's, about a message that it sends: the one it got is a good one.
	for _, err := range []error{errPlanned, inbox.ErrInFlight, inbox.ErrPhantom, inbox.ErrNoMessageID} {
		handler := middleware.Bury(b.store, b.cfg)(nothing(func(*message.Message) error { return err }))
		require.Equal(t, err, call(t, handler, "m"))
	}
	broken := burier{errPlanned}
	err := call(t, middleware.Bury(broken, b.cfg)(b.once(nothing(effect))), "")
	require.ErrorIs(t, err, errPlanned, "not acked: nobody has it")
	require.ErrorIs(t, err, inbox.ErrNoMessageID)
	require.Empty(t, b.column(t, `SELECT message_id FROM inbox_messages`))
}

type burier struct{ err error }

func (b burier) Bury(context.Context, inbox.Dead) error { return b.err }

func TestA11_PhantomIsNackedAndLeavesNothing(t *testing.T) {
	b := newBench(t)
	s := start(t, func(*message.Message) error { t.Error("the handler ran"); return nil },
		b.chain(middleware.Bury(b.store, b.cfg), middleware.Recover)...)
	require.False(t, s.deliver(t, "", ""))
	require.Empty(t, b.column(t, `SELECT message_id FROM inbox_messages`))

	var phantom message.Message
	phantom.SetContext(t.Context())
	_, err := b.once(nothing(effect))(&phantom)
	require.ErrorIs(t, err, inbox.ErrPhantom)
	b.requireCounts(t, "consumer", map[string]int64{})
}

// A17: without a store that remembers, nothing is skipped.
func TestA17_DisabledHandlesEveryDelivery(t *testing.T) {
	b := newBench(t)
	b.cfg.Consumer = func(*message.Message) string { return "consumer" }
	runs := 0
	handler := middleware.Inbox(inboxstore.Disabled{}, b.cfg)(nothing(func(*message.Message) error { runs++; return nil }))
	for range 3 {
		require.NoError(t, call(t, handler, "m"))
	}
	require.Equal(t, 3, runs)
	require.ErrorIs(t, call(t, handler, ""), inbox.ErrNoMessageID)
}

// C08: a poisoned message leaves no row, so its replay from the dead-letter topic runs.
func TestA5_ReplayOfAPoisonedMessageRuns(t *testing.T) {
	b := newBench(t)
	dead := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer dead.Close()
	letters, err := dead.Subscribe(t.Context(), "dead")
	require.NoError(t, err)
	poison, err := wm.PoisonQueueWithFilter(dead, "dead", middleware.ShouldDeadLetter)
	require.NoError(t, err)
	retry := wm.Retry{MaxRetries: 2, InitialInterval: time.Millisecond, ShouldRetry: middleware.ShouldRetry}
	var mended atomic.Bool
	runs := 0
	s := start(t, func(msg *message.Message) error {
		runs++
		if err := effect(msg); err != nil {
			return err
		}
		if !mended.Load() {
			return errors.New(strings.Repeat("a long story ", 1000))
		}
		return nil
	}, b.chain(poison, middleware.ShortErrors, retry.Middleware, middleware.Recover)...)

	require.True(t, s.deliver(t, "m", ""), "the dead-letter topic has it")
	letter := <-letters
	letter.Ack()
	require.Equal(t, "m", letter.UUID)
	require.LessOrEqual(t, len(letter.Metadata.Get(wm.ReasonForPoisonedKey)), 1024+len("…"))
	require.Equal(t, 3, runs)
	b.requireEffects(t)

	mended.Store(true)
	require.True(t, s.deliver(t, letter.UUID, ""))
	require.True(t, s.deliver(t, letter.UUID, ""))
	require.Equal(t, 4, runs)
	b.requireEffects(t, "m")
}
