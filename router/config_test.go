package router_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/dialect"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// D4: every fault of the configuration is reported at once, each with its field and the fix.
func TestD4_EveryFaultAtOnce(t *testing.T) {
	other := uow.NewMemory()
	b := prepareBench(func(c *router.Config) {
		c.Inbox = inboxstore.NewMemory(other)
		c.Outbox = nil
		c.EnableInbox = router.Switch(7)
		c.EnableOutbox = router.On
		c.DeadLetter.Topic = "dead"
		c.Retry = router.Retry{Tries: -1, Horizon: 48 * time.Hour}
		c.CloseTimeout = -time.Second
		c.Retention = router.Retention{Processed: 24 * time.Hour, Chunk: -5}
	})
	_, err := router.New(b.cfg, nil)
	for _, want := range []string{
		"EnableInbox is 7", "Inbox was made on another unit of work", "EnableOutbox is on, but Outbox is nil",
		"Publisher is set, but Outbox is nil", "DeadLetter.Topic and DeadLetter.Publisher go together",
		"Retry.Tries is -1; use at least 1", "CloseTimeout is -1s", "Retention.Chunk is -5",
		"Retention.Processed is 24h0m0s, not longer than Retry.Horizon, 48h0m0s",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestD4_NilDatabaseAndUnknownDialect(t *testing.T) {
	work := uow.New(uow.SQLX(nil), dialect.Dialect{})
	_, err := router.New(router.Config{UnitOfWork: work, Inbox: inboxstore.New(work), Outbox: outboxstore.New(work)}, nil)
	require.ErrorContains(t, err, "the database is nil; pass an open *sqlx.DB")
	require.ErrorContains(t, err, "unknown dialect")

	none := uow.NewMemory()
	_, err = router.New(router.Config{UnitOfWork: none, Inbox: (*inboxstore.Store)(nil), Outbox: (*outboxstore.Store)(nil)}, nil)
	require.ErrorContains(t, err, "inboxstore: the store is nil")
	require.ErrorContains(t, err, "outboxstore: the store is nil")

	_, err = router.New(router.Config{}, nil)
	require.ErrorContains(t, err, "no database; pass uow.SQL(db) or uow.SQLX(db)")
}

// A14, A10: what would fail or lose at the first message fails at the start, all at once.
func TestA14_A10_StartChecks(t *testing.T) {
	b := newBench(t, func(c *router.Config) { c.Outbox, c.Publisher = nil, nil })
	named := func(sub message.Subscriber) message.Subscriber {
		return router.Configure(sub, router.SubscriberConfig{Consumer: "same"})
	}
	b.AddConsumerHandler("one", "in", named(b.subscriber()), nothing)
	b.AddConsumerHandler("two", "in", named(b.subscriber()), nothing)
	b.AddHandler("three", "in", b.subscriber(), "out", b.broker, message.PassthroughHandler)
	b.AddConsumerHandler("four", "in", router.Configure(b.subscriber(), router.SubscriberConfig{EnableOutbox: router.On, EnableInbox: 9}), nothing)
	err := b.Run(t.Context())
	for _, want := range []string{
		`handlers "one" and "two" share the consumer name "same"`,
		`handler "three" has a publisher and an inbox but no outbox`,
		`handler "four": EnableOutbox is on, but Config.Outbox is nil`,
		"SubscriberConfig.EnableInbox of handler four is 9",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestA14_SharedConsumerOnTheEmbeddedRouter(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"one", "two"} {
		sub := router.Configure(b.subscriber(), router.SubscriberConfig{Consumer: "same"})
		b.Router.Router.AddConsumerHandler(name, "in", sub, nothing)
	}
	require.ErrorContains(t, b.Run(t.Context()), `the consumer name "same" of topic "in" is taken`)
}

// A10: a handler that the start could not see is refused at its first output; nothing is lost.
func TestA10_OutputWithoutOutboxIsRefused(t *testing.T) {
	b := newBench(t, func(c *router.Config) { c.Outbox, c.Publisher = nil, nil })
	b.Router.Router.AddHandler("h", "in", b.subscriber(), "out", b.broker, message.PassthroughHandler)
	stopped := b.start(t, t.Context())
	b.publish(t, "in", "1")
	require.Eventually(t, func() bool { return b.log.Has("error", router.ErrOutputWithoutOutbox.Error()) }, wait, time.Millisecond)
	require.NoError(t, b.Close())
	require.NoError(t, stopped())
	require.False(t, b.handled(t, "h", "1"))
}

// A13: auto follows the transport, explicit settings win, and off on a broker is warned of.
func TestA13_Detection(t *testing.T) {
	for name, c := range map[string]struct {
		wrap             bool
		router, per      router.Switch
		deduped, warning bool
	}{
		"GoChannel, auto":           {deduped: false},
		"GoChannel, on":             {router: router.On, deduped: true},
		"GoChannel, on per sub":     {router: router.Off, per: router.On, deduped: true},
		"broker, auto":              {wrap: true, deduped: true},
		"broker, off":               {wrap: true, router: router.Off, warning: true},
		"broker, off per sub":       {wrap: true, per: router.Off, warning: true},
		"broker, on over off":       {wrap: true, router: router.Off, per: router.On, deduped: true},
		"GoChannel, off, no caveat": {router: router.Off},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(cfg *router.Config) { cfg.EnableInbox = c.router })
			var sub message.Subscriber = b.broker
			if c.wrap {
				sub = b.subscriber()
			}
			seen := make(chan string, 3)
			b.AddConsumerHandler("h", "in", router.Configure(sub, router.SubscriberConfig{EnableInbox: c.per}), func(msg *message.Message) error {
				seen <- msg.UUID
				return nil
			})
			stopped := b.start(t, t.Context())
			for _, id := range []string{"twice", "twice", "last"} {
				msg := message.NewMessage(id, nil)
				require.NoError(t, b.broker.Publish("in", msg))
			}
			want := map[string]int{"twice": 2, "last": 1}
			if c.deduped {
				want["twice"] = 1
			}
			got := map[string]int{}
			for range want["twice"] + want["last"] {
				got[receive(t, seen)]++
			}
			require.NoError(t, b.Close()) // what has begun ends first: a second copy too
			require.NoError(t, stopped())
			for len(seen) > 0 {
				got[<-seen]++
			}
			require.Equal(t, want, got)
			require.Equal(t, c.warning, b.log.Has("info", "the inbox is off for a transport that can redeliver"))
		})
	}
}
