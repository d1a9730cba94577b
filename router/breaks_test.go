package router_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
)

var errPlanned = errors.New("planned failure")

// published keeps what is published.
type published chan *message.Message

func (p published) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		p <- msg
	}
	return nil
}
func (published) Close() error { return nil }

// A19, A20: a delivery that the close timeout ends while it waits for its next try is given back.
func TestA19_A20_CloseDuringAPauseDeadLettersNothing(t *testing.T) {
	dead := make(published, 1)
	b := newBench(t, func(c *router.Config) {
		c.CloseTimeout = 50 * time.Millisecond
		c.Retry = router.Retry{Tries: 2, Interval: 30 * time.Second, MaxInterval: 30 * time.Second}
		c.DeadLetter = router.DeadLetter{Topic: "dead", Publisher: dead}
	})
	ran := make(chan bool, 1)
	b.AddConsumerHandler("h", "in", b.subscriber(), func(*message.Message) error { ran <- true; return errPlanned })
	stopped := b.start(t, t.Context())
	b.publish(t, "in", "1")
	receive(t, ran)
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
	require.Empty(t, dead)
	require.True(t, b.log.Has("error", "Handler is interrupted at the close timeout", "message_uuid=1", "consumer=h"))
}

// A14, A1: a name that a handler of the embedded router turns out to have is not shared.
func TestA14_NameOfAnEmbeddedHandlerIsTaken(t *testing.T) {
	b := newBench(t)
	b.Router.Router.AddConsumerHandler("billing", "in", b.subscriber(), nothing)
	b.AddConsumerHandler("audit", "in", router.Configure(b.subscriber(), router.SubscriberConfig{Consumer: "billing"}), nothing)
	stopped := b.start(t, t.Context())
	b.publish(t, "in", "1")
	require.ErrorContains(t, stopped(), `the consumer name "billing" of topic "in" is taken`)
}

// A12: the inner middlewares are next to the handler, also when it is added while the router runs
// and brings a middleware of its own that swallows errors.
func TestA12_HandlerAddedWhileRunning(t *testing.T) {
	poison := make(published, 1)
	b := newBench(t)
	b.AddConsumerHandler("first", "other", b.subscriber(), nothing)
	stopped := b.start(t, t.Context())
	queue, err := wm.PoisonQueue(poison, "poison")
	require.NoError(t, err)
	b.AddConsumerHandler("late", "in", b.subscriber(), func(*message.Message) error { return errPlanned }).AddMiddleware(queue)
	require.NoError(t, b.RunHandlers(t.Context()))
	b.publish(t, "in", "1")
	receive(t, poison)
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
	require.False(t, b.handled(t, "late", "1"), "a replay from the poison topic must run")
}

// A14: what cannot work is refused while the router runs as well, and nothing is left behind.
func TestA14_FaultyHandlerAddedWhileRunning(t *testing.T) {
	b := newBench(t)
	b.AddConsumerHandler("first", "in", b.subscriber(), nothing)
	stopped := b.start(t, t.Context())
	b.AddConsumerHandler("second", "in", router.Configure(b.subscriber(), router.SubscriberConfig{Consumer: "first"}), nothing)
	require.ErrorContains(t, b.RunHandlers(t.Context()), `the consumer name "first" of topic "in" is taken`)
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
}

// D5: a handler that was stopped may be added anew under its name.
func TestD5_StoppedHandlerIsAddedAnew(t *testing.T) {
	b := newBench(t)
	b.AddConsumerHandler("first", "other", b.subscriber(), nothing)
	stopped := b.start(t, t.Context())
	for range 20 {
		h := b.AddConsumerHandler("again", "in", b.subscriber(), nothing)
		require.NoError(t, b.RunHandlers(t.Context()))
		h.Stop()
		receive(t, h.Stopped())
	}
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
}

// endless never ends its subscription.
type endless struct{ in chan *message.Message }

func (e endless) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return e.in, nil
}
func (endless) Close() error { return nil }

// A20: one close timeout, whatever a subscriber does.
func TestA20_SubscriberThatDoesNotEnd(t *testing.T) {
	b := newBench(t, func(c *router.Config) { c.CloseTimeout = 50 * time.Millisecond })
	sub := endless{make(chan *message.Message)}
	b.AddConsumerHandler("h", "in", sub, nothing)
	stopped := b.start(t, t.Context())
	require.NoError(t, b.Close())
	require.ErrorContains(t, stopped(), "did not end its subscription")
	close(sub.in)
}

// C1: what a message says of itself (keys, due time) is not said of the answer to it, although a
// broker in the process hands the context on; and the context of a forwarded message lives on.
func TestC1_AnswerInheritsNothing(t *testing.T) {
	b := prepareBench()
	b.broker = gochannel.NewGoChannel(gochannel.Config{PreserveContext: true}, nil)
	b.cfg.Publisher = b.broker
	r, err := router.New(b.cfg, b.log)
	require.NoError(t, err)
	b.Router = r
	answers := make(chan string, 1)
	b.AddConsumerHandler("asked", "in", b.subscriber(), func(msg *message.Message) error {
		return b.outbox.Publisher().Publish("out", message.NewMessageWithContext(msg.Context(), "answer", nil))
	})
	b.AddConsumerHandler("answered", "out", b.subscriber(), func(msg *message.Message) error {
		answers <- msg.UUID
		return nil
	})
	stopped := b.start(t, t.Context())
	require.NoError(t, b.cfg.UnitOfWork.Do(t.Context(), func(ctx context.Context) error {
		msg := message.NewMessageWithContext(ctx, "question", nil)
		outboxstore.WithIdempotencyKey(msg, "", "order-1")
		return b.outbox.Publisher().Publish("in", msg)
	}))
	require.Equal(t, "answer", receive(t, answers))
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
}

// C1: a message that would vanish under the key of another topic's is refused.
func TestC1_KeyOfAnotherTopicIsAConflict(t *testing.T) {
	b := newBench(t)
	publish := func(topic string) error {
		return b.cfg.UnitOfWork.Do(t.Context(), func(ctx context.Context) error {
			msg := message.NewMessageWithContext(ctx, "m", nil)
			outboxstore.WithIdempotencyKey(msg, "", "order-1")
			return b.outbox.Publisher().Publish(topic, msg)
		})
	}
	require.NoError(t, publish("a"))
	require.NoError(t, publish("a"), "the same message again is no conflict")
	require.ErrorIs(t, publish("b"), outboxstore.ErrConflict)
}
