package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/tests/testlog"
)

// start runs a forwarder and returns what ends it and gives Run's answer.
func start(t testing.TB, f *outboxstore.Forwarder) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("forwarder: Run does not return")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func runPublishesUntilItsContextEnds(t *testing.T, b *outboxBench) {
	p := &broker{}
	stop := start(t, forwarder(t, b, p, outboxstore.ForwarderConfig{Batch: 50}))
	const n = 500
	for i := range n / 100 {
		var batch []outboxstore.Envelope
		for j := range 100 {
			e := envelope(fmt.Sprint(i*100 + j))
			if j%2 == 0 {
				e.OrderingKey = fmt.Sprint("key ", j%10)
			}
			batch = append(batch, e)
		}
		b.add(t, batch...)
	}
	within(t, patience, func() bool { return p.count() == n }, "everything is published")
	require.NoError(t, stop())
	assert.Equal(t, n, p.attempts())
	assert.Equal(t, outboxstore.Stats{}, b.stats(t))
}

func commitWakesTheForwarderAtOnce(t *testing.T, b *outboxBench) {
	p := &broker{}
	start(t, forwarder(t, b, p, outboxstore.ForwarderConfig{Poll: time.Hour}))
	for i := range 5 {
		b.add(t, envelope(fmt.Sprint("free", i)), keyed(fmt.Sprint("keyed", i), "k"))
		within(t, patience, func() bool { return p.count() == 2*(i+1) }, "no poll is waited for")
	}
}

func otherProcessesPoll(t *testing.T, b *outboxBench) {
	p := &broker{}
	start(t, forwarder(t, b.second, p, outboxstore.ForwarderConfig{Poll: 50 * time.Millisecond}))
	b.add(t, envelope("a"))
	within(t, patience, func() bool { return p.count() == 1 }, "the row is found")
}

// Several forwarders, failures, slow publications: per key one row at a time, and the first
// publications in order.
func keysStayInOrderUnderFailures(t *testing.T, b *outboxBench) {
	keys, perKey := 15, 30
	if b.SingleWriter {
		keys, perKey = 6, 12 // each look of each forwarder is a transaction that excludes the others
	}
	var mu sync.Mutex
	busy, next, fault := map[string]bool{}, map[string]int{}, ""
	fail := func(_ string, msg *message.Message) error {
		var key string
		var n int
		_, err := fmt.Sscanf(msg.UUID, "%3s-%d", &key, &n)
		if err != nil {
			return err
		}
		mu.Lock()
		if busy[key] {
			fault = "two rows of a key at a time: " + msg.UUID
		}
		busy[key] = true
		if n != next[key] {
			fault = fmt.Sprintf("%s came while %d was next", msg.UUID, next[key])
		}
		mu.Unlock()
		time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		mu.Lock()
		defer mu.Unlock()
		busy[key] = false
		switch rand.IntN(20) {
		case 0:
			return outboxstore.Rejected(errBroker)
		case 1:
			return outboxstore.Unavailable(errBroker)
		case 2:
			return errBroker
		}
		next[key]++
		return nil
	}
	p := &broker{fail: fail}
	for i := range 3 {
		store := []OutboxStore{b.OutboxStore, b.second}[i%2]
		start(t, forwarder(t, store, p, outboxstore.ForwarderConfig{
			Batch: 30, Workers: 6, PerKey: 7, Poll: 20 * time.Millisecond, MaxRejections: 1000, MaxPause: 5 * time.Millisecond,
		}))
	}
	for n := range perKey {
		var batch []outboxstore.Envelope
		for k := range keys {
			batch = append(batch, keyed(fmt.Sprintf("%03d-%d", k, n), fmt.Sprint(k)))
		}
		b.add(t, batch...)
	}
	within(t, 3*patience, func() bool { return p.count() >= keys*perKey }, "everything is published")
	mu.Lock()
	defer mu.Unlock()
	assert.Empty(t, fault)
	assert.Equal(t, keys*perKey, p.count())
}

func stopDrainsAndGivesBack(t *testing.T, b *outboxBench) {
	var batch []outboxstore.Envelope
	for i := range 50 {
		batch = append(batch, envelope(fmt.Sprint(i)))
	}
	b.add(t, batch...)
	begun, release := make(chan struct{}, 100), make(chan struct{})
	p := &broker{fail: func(string, *message.Message) error { begun <- struct{}{}; <-release; return nil }}
	stop := start(t, forwarder(t, b, p, outboxstore.ForwarderConfig{Workers: 3}))
	for range 3 {
		<-begun
	}
	stopped := ask(stop)
	within(t, patience, func() bool { return b.stats(t) == outboxstore.Stats{Pending: 47, Leased: 3} }, "what waits is given back at once")
	close(release)
	require.NoError(t, receive(t, stopped))
	assert.Equal(t, 3, p.count(), "what had begun was finished, nothing else was begun")
	assert.Equal(t, outboxstore.Stats{Pending: 47}, b.stats(t))
	assert.Len(t, b.claim(t, 100), 47)
}

func publisherThatDoesNotReturnCannotHoldRun(t *testing.T, b *outboxBench) {
	b.add(t, envelope("stuck"), envelope("fine"))
	release := make(chan struct{})
	defer close(release)
	p := &broker{fail: func(_ string, msg *message.Message) error {
		if msg.UUID == "stuck" {
			<-release
		}
		return nil
	}}
	log := testlog.New()
	stop := start(t, forwarder(t, b, p, outboxstore.ForwarderConfig{DrainTimeout: 50 * time.Millisecond, Logger: log}))
	within(t, patience, func() bool { return p.count() == 1 }, "others go on")
	require.NoError(t, stop())
	assert.True(t, log.Has("error", "does not return"))
	assert.Equal(t, outboxstore.Stats{Leased: 1}, b.stats(t), "its lease is left to expire")
}

func publisherThatHeedsItsContextIsInterruptedWithoutBlame(t *testing.T, b *outboxBench) {
	b.add(t, envelope("slow"))
	begun := make(chan struct{}, 1)
	p := &broker{fail: func(_ string, msg *message.Message) error {
		begun <- struct{}{}
		<-msg.Context().Done()
		return msg.Context().Err()
	}}
	stop := start(t, forwarder(t, b, p, outboxstore.ForwarderConfig{DrainTimeout: 50 * time.Millisecond}))
	<-begun
	require.NoError(t, stop())
	claimed := b.claim(t, 10)
	require.Len(t, claimed, 1)
	assert.Zero(t, claimed[0].Rejections)
}

func panicGoesOnInTheCallersGoroutine(t *testing.T, b *outboxBench) {
	b.add(t, envelope("a"), envelope("bomb"), envelope("b"))
	p := &broker{fail: func(_ string, msg *message.Message) error {
		if msg.UUID == "bomb" {
			panic("boom")
		}
		return nil
	}}
	log := testlog.New()
	f := forwarder(t, b, p, outboxstore.ForwarderConfig{Workers: 1, Logger: log})
	require.PanicsWithValue(t, "boom", func() { _ = f.Run(context.Background()) })
	assert.Equal(t, outboxstore.Stats{Pending: 1, Leased: 1}, b.stats(t))
	assert.True(t, log.Has("error", "panicked", "boom", "outbox_run.go"), "with the stack of the fault")
	assert.Equal(t, []string{"b"}, ids(b.claim(t, 10)))
}

func leaseIsRenewedWhilePublishingAndNoLonger(t *testing.T, b *outboxBench) {
	slow := b.add(t, keyed("slow", "k"), keyed("behind", "k"))[0].Seq
	release := make(chan struct{})
	p := &broker{fail: func(string, *message.Message) error { <-release; return nil }}
	source := &renewals{Source: b, of: slow}
	start(t, forwarder(t, source, p, outboxstore.ForwarderConfig{
		Lease: time.Second, PublishTimeout: 2 * time.Second, DrainTimeout: 50 * time.Millisecond,
	}))
	defer close(release)
	within(t, patience, func() bool { return source.with.Load() > 0 }, "it is renewed")
	within(t, patience, func() bool { return source.without.Load() > 0 }, "what waits is renewed, and it no more")
	var taken []outboxstore.Claimed
	within(t, patience, func() bool {
		claimed, err := b.second.Claim(context.Background(), request(10))
		require.NoError(t, err)
		taken = append(taken, claimed...)
		return len(taken) > 0
	}, "the lease ends at last")
	assert.Equal(t, slow, taken[0].Lease.Seq)
}

// renewals counts the renewals with and without a row.
type renewals struct {
	outboxstore.Source
	of            int64
	with, without atomic.Int32
}

func (r *renewals) Renew(ctx context.Context, leases []outboxstore.Lease, lease time.Duration) (int, error) {
	counter := &r.without
	for _, l := range leases {
		if l.Seq == r.of {
			counter = &r.with
		}
	}
	if len(leases) > 0 {
		counter.Add(1)
	}
	return r.Source.Renew(ctx, leases, lease)
}

func databaseOutageIsSurvived(t *testing.T, b *outboxBench) {
	source := &flaky{Source: b}
	p := &broker{fail: func(_ string, msg *message.Message) error {
		if msg.UUID == "first" {
			source.down.Store(true) // after the claim, before the outcome is written
		}
		return nil
	}}
	log := testlog.New()
	stop := start(t, forwarder(t, source, p, outboxstore.ForwarderConfig{MaxPause: 50 * time.Millisecond, Poll: 10 * time.Millisecond, Logger: log}))
	b.add(t, envelope("first"))
	within(t, patience, func() bool {
		return log.Has("error", "could not be written", "gone") && log.Has("error", "could not be claimed")
	}, "it is noticed")
	source.down.Store(false)
	b.add(t, envelope("second"))
	within(t, patience, func() bool { return p.has("second") && b.stats(t) == outboxstore.Stats{} }, "it goes on")
	assert.True(t, log.Has("info", "can be claimed again"))
	require.NoError(t, stop())
	assert.Equal(t, 2, p.attempts(), "nothing is published twice: the outcome was kept")
}

func runMayBeStoppedBeforeItStartsAndStartedAgain(t *testing.T, b *outboxBench) {
	p := &broker{}
	f := forwarder(t, b, p, outboxstore.ForwarderConfig{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, f.Run(ended))
	stop := start(t, f)
	b.add(t, envelope("a"))
	within(t, patience, func() bool { return p.count() == 1 }, "it runs")
	require.ErrorIs(t, f.Run(ended), outboxstore.ErrRunning)
	require.NoError(t, stop())
	require.NoError(t, f.Run(ended))
}

func outageEndsByItself(t *testing.T, b *outboxBench) {
	for name, failure := range map[string]error{"typed": outboxstore.Unavailable(errBroker), "unclassified": errBroker} {
		t.Run(name, func(t *testing.T) {
			var down atomic.Bool
			down.Store(true)
			p := &broker{fail: func(string, *message.Message) error {
				if down.Load() {
					return failure
				}
				return nil
			}}
			log := testlog.New()
			f := forwarder(t, b, p, outboxstore.ForwarderConfig{MaxPause: 100 * time.Millisecond, Poll: 50 * time.Millisecond, MaxRejections: 1, Logger: log})
			start(t, f)
			var batch []outboxstore.Envelope
			for i := range 200 {
				batch = append(batch, envelope(fmt.Sprint(name, i)))
			}
			b.add(t, batch...)
			within(t, patience, func() bool {
				return log.Has("error", "forwarding pauses", "times=3") || log.Count("error", "forwarding pauses") >= 3
			}, "it pauses")
			assert.Less(t, p.attempts(), 150, "probes are few")
			assert.Zero(t, b.stats(t).Dead)
			down.Store(false)
			within(t, patience, func() bool { return p.count() == 200 }, "everything is published")
			within(t, patience, func() bool { return b.stats(t) == outboxstore.Stats{} }, "and recorded")
		})
	}
}

// flaky is a source whose database goes away.
type flaky struct {
	outboxstore.Source
	down atomic.Bool
}

var errDatabase = errors.New("the database is gone")

func (f *flaky) Claim(ctx context.Context, r outboxstore.ClaimRequest) ([]outboxstore.Claimed, error) {
	if f.down.Load() {
		return nil, errDatabase
	}
	return f.Source.Claim(ctx, r)
}

func (f *flaky) Complete(ctx context.Context, l []outboxstore.Lease, keep bool) (int, error) {
	if f.down.Load() {
		return 0, errDatabase
	}
	return f.Source.Complete(ctx, l, keep)
}
