package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
)

// workers are the background workers of a running router. The forwarder stops first, because it
// drains; the retention may stop at any moment.
type workers struct {
	stopForwarder, stopRetention context.CancelFunc
	forwarder, retention         sync.WaitGroup

	mu       sync.Mutex
	errs     []error
	panicked any
}

// startWorkers starts what the configuration asks for. The workers outlive ctx: stop ends them.
func (r *Router) startWorkers(ctx context.Context) *workers {
	w := &workers{}
	ctx = context.WithoutCancel(ctx)
	forwarding, stopForwarder := context.WithCancel(ctx)
	purging, stopRetention := context.WithCancel(ctx)
	w.stopForwarder, w.stopRetention = stopForwarder, stopRetention
	if r.forwarder != nil {
		w.forwarder.Go(func() { w.watch(r, "forwarder", func() error { return r.forwarder.Run(forwarding) }) })
	}
	w.retention.Go(func() { w.watch(r, "retention", func() error { r.purgeLoop(purging); return nil }) })
	return w
}

// watch keeps what a worker returned, or the panic that ended it, and closes the router then: one
// that went on without its forwarder would look healthy and deliver nothing.
func (w *workers) watch(r *Router, name string, run func() error) {
	defer func() {
		if p := recover(); p != nil {
			w.mu.Lock()
			w.panicked = fmt.Sprintf("%v\n\n%s of the router:\n%s", p, name, debug.Stack())
			w.mu.Unlock()
			r.beginClosing()
		}
	}()
	if err := run(); err != nil && !errors.Is(err, context.Canceled) {
		w.mu.Lock()
		w.errs = append(w.errs, fmt.Errorf("router: %s: %w", name, err))
		w.mu.Unlock()
		r.beginClosing()
	}
}

func (w *workers) stop() error {
	w.stopForwarder()
	w.forwarder.Wait()
	w.stopRetention()
	w.retention.Wait()
	return errors.Join(w.errs...)
}

// panicOn lets a panic of a publisher go on in the goroutine of Run.
func (w *workers) panicOn() {
	if w.panicked != nil {
		panic(w.panicked)
	}
}

// purgeLoop deletes rows past their retention, in chunks, until ctx ends. The first purge comes
// after a full period, so that a process that restarts in a loop does not purge in one.
func (r *Router) purgeLoop(ctx context.Context) {
	for {
		period := r.cfg.Retention.Every
		if !sleep(ctx, period-period/10+rand.N(period/5)) {
			return
		}
		if err := r.purge(ctx); err != nil && ctx.Err() == nil {
			r.logger.Error("Purge of old rows failed; it is tried again at the next period", err, watermill.LogFields{"every": period.String()})
		}
	}
}

func (r *Router) purge(ctx context.Context) error {
	keep, chunk := r.cfg.Retention, r.cfg.Retention.Chunk
	var errs []error
	if r.cfg.Inbox != nil && r.cfg.EnableInbox != Off {
		errs = append(errs, chunks(ctx, chunk, func() (int64, error) {
			return r.cfg.Inbox.Purge(ctx, inboxstore.Retention{Processed: keep.Processed, Dead: keep.Dead}, chunk)
		}))
	}
	if r.cfg.Outbox != nil {
		errs = append(errs, chunks(ctx, chunk, func() (int64, error) {
			return r.cfg.Outbox.Purge(ctx, outboxstore.PurgePolicy{Forwarded: keep.Forwarded, Dead: keep.Dead, Chunk: chunk})
		}))
	}
	return errors.Join(errs...)
}

// chunks deletes chunk by chunk until less than one was left.
func chunks(ctx context.Context, size int, purge func() (int64, error)) error {
	for ctx.Err() == nil {
		if n, err := purge(); err != nil || n < int64(size) {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
