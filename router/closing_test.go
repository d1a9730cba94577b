package router_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
)

func (b *bench) handled(t *testing.T, consumer, id string) bool {
	gone, err := b.inbox.Abandon(t.Context(), inbox.Key{Consumer: consumer, MessageID: id})
	require.NoError(t, err)
	return !gone
}

// A20: a handler that has begun finishes and commits, by Close and by the end of the context alike.
func TestA20_BegunHandlerCommits(t *testing.T) {
	for name, end := range map[string]func(*bench, context.CancelFunc){
		"Close":          func(b *bench, _ context.CancelFunc) { _ = b.Close() },
		"context ends":   func(_ *bench, cancel context.CancelFunc) { cancel() },
		"embedded Close": func(b *bench, _ context.CancelFunc) { _ = b.Router.Router.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			begun, finish, cancelled := make(chan bool), make(chan bool), make(chan error, 1)
			b.AddConsumerHandler("slow", "in", b.subscriber(), func(msg *message.Message) error {
				begun <- true
				<-finish
				cancelled <- msg.Context().Err()
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stopped := b.start(t, ctx)
			b.publish(t, "in", "1")
			receive(t, begun)
			ended := make(chan bool)
			go func() { end(b, cancel); close(ended) }()
			require.Eventually(t, func() bool { return b.log.Has("info", "Closing router") }, wait, time.Millisecond)
			close(finish)
			require.NoError(t, receive(t, cancelled), "the handler's context ended too early")
			require.NoError(t, stopped())
			receive(t, ended)
			require.True(t, b.handled(t, "slow", "1"))
		})
	}
}

// A20, A5: at the close timeout, and only then, the handler's context ends; its work is rolled back.
func TestA20_CloseTimeoutEndsTheContext(t *testing.T) {
	b := newBench(t, func(c *router.Config) { c.CloseTimeout = 50 * time.Millisecond })
	begun := make(chan bool, 1)
	b.AddConsumerHandler("stuck", "in", b.subscriber(), func(msg *message.Message) error {
		begun <- true
		<-msg.Context().Done()
		return nil // swallowed: the unit of work must notice by itself
	})
	stopped := b.start(t, t.Context())
	b.publish(t, "in", "1")
	receive(t, begun)
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
	require.False(t, b.handled(t, "stuck", "1"))
}

func TestD5_StopIsSafeAtAnyMoment(t *testing.T) {
	t.Run("before the start", func(t *testing.T) {
		b := newBench(t)
		b.AddConsumerHandler("h", "in", b.subscriber(), nothing)
		require.NoError(t, b.Close())
		require.ErrorIs(t, b.Run(t.Context()), router.ErrUsed)
	})
	t.Run("twice, and run again", func(t *testing.T) {
		b := newBench(t)
		b.AddConsumerHandler("h", "in", b.subscriber(), nothing)
		stopped := b.start(t, t.Context())
		require.NoError(t, b.Close())
		require.NoError(t, b.Close())
		require.NoError(t, stopped())
		require.ErrorIs(t, b.Run(t.Context()), router.ErrUsed)
	})
	t.Run("during the start", func(t *testing.T) {
		for range 50 {
			b := newBench(t)
			b.AddConsumerHandler("h", "in", b.subscriber(), nothing)
			result := make(chan error, 1)
			go func() { result <- b.Run(t.Context()) }()
			require.NoError(t, b.Close())
			err := receive(t, result)
			require.True(t, err == nil || errors.Is(err, router.ErrUsed), "%v", err)
		}
	})
	t.Run("without any handler", func(t *testing.T) {
		b := newBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := b.start(t, ctx)
		cancel()
		require.NoError(t, stopped())
	})
	t.Run("context ended before", func(t *testing.T) {
		b := newBench(t)
		b.AddConsumerHandler("h", "in", b.subscriber(), nothing)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = b.Run(ctx)
	})
	t.Run("run on the embedded router", func(t *testing.T) {
		b := newBench(t)
		require.ErrorContains(t, b.Router.Router.Run(t.Context()), "call Run on the router itself")
	})
}

// A phantom, as a closing AMQP channel yields it, reaches no handler and leaves no row (A11).
func TestA11_PhantomIsNacked(t *testing.T) {
	in := make(chan *message.Message)
	b := newBench(t)
	seen := make(chan string, 2)
	b.AddConsumerHandler("h", "in", channelSubscriber(in), func(msg *message.Message) error {
		seen <- msg.UUID
		return nil
	})
	stopped := b.start(t, t.Context())
	phantom := message.NewMessage("", nil)
	in <- phantom
	receive(t, phantom.Nacked())
	in <- message.NewMessage("real", nil)
	require.Equal(t, "real", receive(t, seen))
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
	purged, err := b.inbox.Purge(t.Context(), inboxstore.Retention{Processed: 1, Dead: 1}, 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, purged, "only the real message has a row")
}

// channelSubscriber yields what a test sends.
type channelSubscriber chan *message.Message

func (c channelSubscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for {
			select {
			case msg := <-c:
				out <- msg
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (channelSubscriber) Close() error { return nil }
