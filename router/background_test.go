package router_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
)

// countingInbox counts purges, and says how many rows each found.
type countingInbox struct {
	*inboxstore.Memory
	found  []int64
	purged chan int64
}

func (c *countingInbox) Purge(context.Context, inboxstore.Retention, int) (int64, error) {
	n := int64(0)
	if len(c.found) > 0 {
		n, c.found = c.found[0], c.found[1:]
	}
	c.purged <- n
	return n, nil
}

// A18: a purge goes on while chunks are full, and comes only after a period, only with the inbox on.
func TestA18_PurgeRunsInChunksWhereTheInboxIsOn(t *testing.T) {
	var inbox *countingInbox
	b := newBench(t, func(c *router.Config) {
		inbox = &countingInbox{Memory: c.Inbox.(*inboxstore.Memory), found: []int64{10, 10, 3}, purged: make(chan int64)}
		c.Inbox, c.Retention = inbox, router.Retention{Every: 20 * time.Millisecond, Chunk: 10}
	})
	stopped := b.start(t, t.Context())
	for _, want := range []int64{10, 10, 3, 0} { // the last one is the next period's
		require.Equal(t, want, receive(t, inbox.purged))
	}
	purged := inbox.purged
	go func() { // a purge may be under way
		for range purged {
			continue
		}
	}()
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
	close(purged)

	off := newBench(t, func(c *router.Config) {
		inbox = &countingInbox{Memory: c.Inbox.(*inboxstore.Memory)} // a purge would block for ever
		c.Inbox, c.EnableInbox, c.Retention = inbox, router.Off, router.Retention{Every: time.Millisecond}
	})
	stopped = off.start(t, t.Context())
	require.NoError(t, off.Close())
	require.NoError(t, stopped())
}

type panickingPublisher struct{}

func (panickingPublisher) Publish(string, ...*message.Message) error { panic("publisher") }
func (panickingPublisher) Close() error                              { return nil }

// C10: the panic of a publisher ends the router and goes on in the goroutine of Run.
func TestC10_PublisherPanicEndsTheRouter(t *testing.T) {
	b := newBench(t, func(c *router.Config) { c.Publisher = panickingPublisher{} })
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_ = b.Run(t.Context())
	}()
	<-b.Running()
	require.NoError(t, b.cfg.UnitOfWork.Do(t.Context(), func(ctx context.Context) error {
		return b.outbox.Publisher().Publish("out", message.NewMessageWithContext(ctx, "1", nil))
	}))
	require.Contains(t, receive(t, panicked), "publisher")
}

// A10, C9: what a handler returns goes through the outbox to the forwarder's publisher.
func TestA10_C9_ReturnedMessagesAreForwarded(t *testing.T) {
	b := newBench(t)
	b.AddHandler("first", "in", b.subscriber(), "out", nil, message.PassthroughHandler)
	got := make(chan string, 1)
	b.AddConsumerHandler("second", "out", b.subscriber(), func(msg *message.Message) error {
		got <- msg.UUID
		return nil
	})
	stopped := b.start(t, t.Context())
	b.publish(t, "in", "1")
	require.Equal(t, "1", receive(t, got))
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
	require.True(t, b.handled(t, "first", "1"))
}
