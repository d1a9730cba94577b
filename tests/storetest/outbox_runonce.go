package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
)

var errBroker = errors.New("broker says no")

func forwarder(t testing.TB, source outboxstore.Source, publisher message.Publisher, cfg outboxstore.ForwarderConfig) *outboxstore.Forwarder {
	t.Helper()
	if cfg.MinRetry == 0 {
		cfg.MinRetry, cfg.MaxRetry = time.Millisecond, time.Millisecond
	}
	f, err := outboxstore.NewForwarder(source, publisher, cfg)
	require.NoError(t, err)
	return f
}

// failing fails for the messages named.
func failing(err error, ids ...string) func(string, *message.Message) error {
	return func(_ string, msg *message.Message) error {
		for _, id := range ids {
			if msg.UUID == id {
				return err
			}
		}
		return nil
	}
}

func runOncePublishesOneBatchInOrder(t *testing.T, b *outboxBench) {
	b.add(t, envelope("c"), keyed("k1", "k"), envelope("a"), keyed("k2", "k"), envelope("b"))
	p := &broker{}
	f := forwarder(t, b, p, outboxstore.ForwarderConfig{Batch: 4})
	n, err := f.RunOnce(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, n)
	assert.Equal(t, []string{"c", "k1", "a", "k2"}, p.ids())
	n, err = f.RunOnce(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	n, err = f.RunOnce(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Equal(t, outboxstore.Stats{}, b.stats(t))
	assert.Equal(t, outboxstore.AlreadyEnqueued, b.add(t, envelope("a"))[0].Outcome, "forwarded rows are kept")
}

func retentionZeroDeletesAtCompletion(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"))
	_, err := forwarder(t, b, &broker{}, outboxstore.ForwarderConfig{DeleteForwarded: true}).RunOnce(t.Context())
	require.NoError(t, err)
	assert.Equal(t, outboxstore.Enqueued, b.add(t, envelope("a"))[0].Outcome)
}

func messageArrivesAsItWasSent(t *testing.T, b *outboxBench) {
	plain := envelope("plain")
	plain.Message.Metadata = message.Metadata{"traceparent": "00-x", "empty": ""}
	rich := envelope("rich")
	rich.ContentType, rich.Source, rich.OccurredAt = "text/html", "billing", time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	rich.Message.Metadata = message.Metadata{outboxstore.MetadataSource: "the user's own"}
	b.add(t, plain)
	rich.DueAt = time.Now()
	b.add(t, rich)
	p := &broker{}
	time.Sleep(5 * time.Millisecond) // rich is due by any clock then
	_, err := forwarder(t, b, p, outboxstore.ForwarderConfig{}).RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"plain", "rich"}, p.ids())
	assert.True(t, p.taken[0].Equals(plain.Message))
	assert.Equal(t, message.Metadata{
		outboxstore.MetadataSource: "the user's own", outboxstore.MetadataContentType: "text/html",
		outboxstore.MetadataOccurredAt: "2020-01-02T03:04:05Z",
	}, p.taken[1].Metadata)
	assert.Equal(t, "billing", outboxstore.FromMessage("", p.taken[1]).Source)
}

func cancellationStopsBeforeTheNextMessage(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"), envelope("b"), envelope("c"))
	ctx, cancel := context.WithCancel(t.Context())
	p := &broker{fail: func(_ string, msg *message.Message) error {
		if msg.UUID == "b" {
			cancel()
			assert.NoError(t, msg.Context().Err(), "what has begun may finish")
		}
		return nil
	}}
	n, err := forwarder(t, b, p, outboxstore.ForwarderConfig{}).RunOnce(ctx)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 2, n)
	claimed := b.claim(t, 10)
	assert.Equal(t, []string{"c"}, ids(claimed), "a and b are recorded, c is given back at once")
	assert.Zero(t, claimed[0].Rejections)
}

func rejectionSpendsOneAndParksItsKey(t *testing.T, b *outboxBench) {
	b.add(t, keyed("bad", "k"), keyed("behind", "k"), envelope("other"), keyed("other key", "l"))
	p := &broker{fail: failing(outboxstore.Rejected(errBroker), "bad")}
	f := forwarder(t, b, p, outboxstore.ForwarderConfig{MaxRejections: 2, MinRetry: 100 * time.Millisecond, MaxRetry: 100 * time.Millisecond})
	n, err := f.RunOnce(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.Equal(t, []string{"other", "other key"}, p.ids())
	n, err = f.RunOnce(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n, "the key waits for its head")
	within(t, patience, func() bool { _, err := f.RunOnce(t.Context()); return err == nil && p.has("behind") }, "the dead row lets its key go on")
	assert.Equal(t, outboxstore.Stats{Dead: 1}, b.stats(t))
	assert.Equal(t, 5, p.attempts())
}

func unclassifiedFailureIsARejectionOnlyBesideASuccess(t *testing.T, b *outboxBench) {
	b.add(t, keyed("poison", "k"), keyed("behind", "k"))
	p := &broker{fail: failing(errBroker, "poison")}
	f := forwarder(t, b, p, outboxstore.ForwarderConfig{MaxRejections: 1, MaxPause: time.Millisecond})
	for range 5 { // alone: retried without end, never dead
		within(t, patience, func() bool { _, err := f.RunOnce(t.Context()); return errors.Is(err, errBroker) }, "it is tried")
	}
	assert.Equal(t, outboxstore.Stats{Pending: 2}, b.stats(t))
	i := 0
	within(t, patience, func() bool {
		i++
		b.add(t, envelope(fmt.Sprint("good ", i)))
		_, err := f.RunOnce(t.Context())
		require.NoError(t, err)
		return p.has("behind")
	}, "judged when both are due at a time")
	assert.Equal(t, outboxstore.Stats{Dead: 1}, b.stats(t))
}

func undecodableRowDiesAlone(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"), keyed("bad", "k"), keyed("behind", "k"), envelope("z"))
	b.doTable(t, "UPDATE %s SET metadata = 'no JSON' WHERE message_id = 'bad'")
	p := &broker{}
	n, err := forwarder(t, b, p, outboxstore.ForwarderConfig{}).RunOnce(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	assert.Equal(t, []string{"a", "behind", "z"}, p.ids())
	assert.Equal(t, outboxstore.Stats{Dead: 1}, b.stats(t))
}

func panicGoesOnAfterTheOthersAreWrittenBack(t *testing.T, b *outboxBench) {
	b.add(t, envelope("done"), keyed("bomb", "k"), keyed("behind", "k"), envelope("rest"))
	p := &broker{fail: func(_ string, msg *message.Message) error {
		if msg.UUID == "bomb" {
			panic("boom")
		}
		return nil
	}}
	f := forwarder(t, b, p, outboxstore.ForwarderConfig{})
	require.PanicsWithValue(t, "boom", func() { _, _ = f.RunOnce(t.Context()) })
	assert.Equal(t, outboxstore.Stats{Pending: 2, Leased: 1}, b.stats(t))
	assert.Equal(t, []string{"rest"}, ids(b.claim(t, 10)), "the key is closed until the lease expires")
	if b.SQL {
		assert.Equal(t, 1, b.countRows(t, "message_id = 'bomb' AND rejections = 1 AND state = 'leased'"))
		assert.Equal(t, 1, b.countRows(t, "message_id = 'done' AND state = 'forwarded'"))
	}
}

func runOnceRenewsBetweenMessages(t *testing.T, b *outboxBench) {
	for i := range 4 {
		b.add(t, envelope(fmt.Sprint(i)))
	}
	stolen := 0
	p := &broker{fail: func(string, *message.Message) error {
		time.Sleep(550 * time.Millisecond) // a slow broker: the batch takes longer than one lease
		stolen += len(b.claim(t, 10))
		return nil
	}}
	n, err := forwarder(t, b, p, outboxstore.ForwarderConfig{Lease: 2 * time.Second}).RunOnce(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, n)
	assert.Zero(t, stolen)
}

func rowWhoseLeaseRanOutIsNotPublished(t *testing.T, b *outboxBench) {
	b.add(t, envelope("slow"), envelope("late"))
	p := &broker{fail: func(_ string, msg *message.Message) error {
		if msg.UUID == "slow" {
			time.Sleep(1200 * time.Millisecond) // the whole process stands still for longer than the lease
			claimed, err := b.second.Claim(context.Background(), request(10))
			assert.NoError(t, err)
			assert.Len(t, claimed, 2)
		}
		return nil
	}}
	_, err := forwarder(t, b, p, outboxstore.ForwarderConfig{Lease: time.Second}).RunOnce(t.Context())
	require.ErrorIs(t, err, outboxstore.ErrLeaseLost)
	assert.Equal(t, []string{"slow"}, p.ids())
}

func outageSpendsNothing(t *testing.T, b *outboxBench) {
	for name, failure := range map[string]error{"typed": outboxstore.Unavailable(errBroker), "unclassified": errBroker} {
		var batch []outboxstore.Envelope
		for i := range 40 {
			batch = append(batch, envelope(fmt.Sprint(name, i)))
		}
		b.add(t, batch...)
		down := &broker{fail: func(string, *message.Message) error { return failure }}
		f := forwarder(t, b, down, outboxstore.ForwarderConfig{MaxPause: time.Millisecond})
		for range 6 {
			within(t, patience, func() bool { _, err := f.RunOnce(t.Context()); return errors.Is(err, errBroker) }, "it is tried")
		}
		assert.LessOrEqual(t, down.attempts(), 100, "not the whole batch is tried")
		assert.Equal(t, outboxstore.Stats{Pending: 40}, b.stats(t))
		p := &broker{}
		within(t, patience, func() bool {
			_, err := forwarder(t, b, p, outboxstore.ForwarderConfig{}).RunOnce(t.Context())
			return err == nil && p.count() == 40
		}, "everything is published")
		for _, row := range b.list(t, outboxstore.Filter{}) {
			assert.Zero(t, row.Rejections)
		}
	}
}
