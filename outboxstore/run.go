package outboxstore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Run publishes until ctx ends. It survives failures of the database and of the broker: it pauses
// and goes on by itself. When ctx ends it claims nothing more, lets what is being published come to
// its end, at most DrainTimeout, writes everything back and gives the rest back; then it returns
// nil, or what could not be written. Nothing that it started goes on, except a publisher that does
// not return.
//
// When the publisher panics, Run drains in the same way and panics on in the caller's goroutine;
// the row itself stays leased until its lease expires. Run may be called again after it has
// returned; while it runs, another call returns [ErrRunning].
func (f *Forwarder) Run(ctx context.Context) error {
	if !f.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer f.running.Store(false)
	r := &run{session: newSession(f), queue: make(chan []*item, 2*f.cfg.Batch)}

	fetching, stop := context.WithCancel(ctx)
	defer stop()
	publishing, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	keeping, endKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer endKeeping()

	var workers, keepers sync.WaitGroup
	for range f.cfg.Workers {
		workers.Go(func() { r.worker(publishing, stop) })
	}
	keepers.Go(func() { r.write(keeping) })
	keepers.Go(func() { r.keep(keeping) })

	r.fetch(fetching)
	end := time.Now().Add(f.cfg.DrainTimeout)
	r.stopQueue()
	r.waitFor(&workers, end, abort)
	r.judge()
	r.giveBackAll()
	endKeeping()
	keepers.Wait()
	err := r.lastFlush(context.WithoutCancel(ctx), end)
	if p := r.panicValue(); p != nil {
		panic(p)
	}
	return err
}

// run is a session with workers.
type run struct {
	*session
	queue chan []*item // rows of one key are one entry; it never fills: see [run.next]

	// Guarded by the session's lock.
	queued, active int // entries that wait, and that a worker has
	stopping       bool
	panicking      any
	pauseEnd       time.Time
}

// worker publishes what comes until the queue is closed. A panic ends Run.
func (r *run) worker(publishing context.Context, stop context.CancelFunc) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if p == nil {
			p = errors.New("outboxstore: the publisher called runtime.Goexit")
		}
		r.f.cfg.Logger.Error("The outbox forwarder stops because its publisher panicked", fmt.Errorf("%v\n%s", p, debug.Stack()), nil)
		r.mu.Lock()
		if r.panicking == nil {
			r.panicking = p
		}
		r.stopping = true
		r.mu.Unlock()
		stop()
	}()
	for lane := range r.queue {
		r.lane(publishing, lane)
	}
	returned = true
}

// lane publishes rows of one key in order, or a single row.
func (r *run) lane(publishing context.Context, lane []*item) {
	r.mu.Lock()
	r.queued--
	r.active++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.active--
		if r.queued == 0 && r.active == 0 {
			r.conclude()
		}
	}()
	for len(lane) > 0 {
		if r.mustStop() {
			r.giveBack(lane)
			return
		}
		if !r.one(publishing, lane) {
			return
		}
		lane = lane[1:]
	}
}

func (r *run) mustStop() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping || r.verdict.down
}

// enqueue hands rows to the workers: one entry a row, or a key.
func (r *run) enqueue(items []*item) {
	for i, it := range items {
		if it == nil {
			continue
		}
		lane := items[i : i+1 : i+1]
		if key := it.claimed.Envelope.OrderingKey; key != "" {
			lane = nil
			for j, other := range items[i:] {
				if other != nil && other.claimed.Envelope.OrderingKey == key {
					lane = append(lane, other)
					items[i+j] = nil
				}
			}
		}
		r.mu.Lock()
		r.queued++
		r.mu.Unlock()
		r.queue <- lane
	}
}

// stopQueue gives back what waits and ends the workers once they are done.
func (r *run) stopQueue() {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	close(r.queue)
	for lane := range r.queue {
		r.giveBack(lane)
	}
}

// waitFor waits for the workers until the end of the drain. Then it ends their publications, and
// waits a moment more for those that take notice.
func (r *run) waitFor(workers *sync.WaitGroup, end time.Time, abort context.CancelFunc) {
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	const moment = time.Second
	for _, wait := range []time.Duration{time.Until(end), moment} {
		timer := time.NewTimer(max(0, wait))
		select {
		case <-done:
			timer.Stop()
			return
		case <-timer.C:
			abort()
		}
	}
	r.f.cfg.Logger.Error("The outbox publisher does not return; the rows it has come again when their leases expire", nil, nil)
}

// lastFlush writes what is left, again and again until the end of the drain, and at least once.
func (r *run) lastFlush(ctx context.Context, end time.Time) error {
	for {
		err := r.flush(ctx)
		if err == nil || time.Now().After(end) {
			return err
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

func (r *run) panicValue() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.panicking
}
