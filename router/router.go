// Package router arranges Watermill's router so that handlers take effect once: it puts the
// middlewares of package middleware in their order, resolves per subscriber what is on, checks at
// the start what would otherwise fail at the first message, lets handlers that have begun finish
// when it closes, and runs the forwarder and the retention beside the handlers.
package router

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
)

// ErrUsed is returned by Run when the router has run, is running or was closed: it runs once.
var ErrUsed = errors.New("router: this router is running, has run or was closed; make a new one")

// Router is Watermill's router, arranged. Everything of *message.Router works on it: handlers that
// are added to the embedded router, as Watermill's cqrs processors do, get all of it as well.
type Router struct {
	*message.Router

	cfg       Config
	logger    watermill.LoggerAdapter
	forwarder *outboxstore.Forwarder // nil when another process forwards

	inner     message.HandlerMiddleware // the middlewares next to the handler
	used      atomic.Bool
	closing   chan struct{} // closed when nothing more is passed on to handlers
	closeOnce sync.Once
	done      chan struct{} // closed when Run has returned
	pumps     sync.WaitGroup
	drains    sync.WaitGroup

	mu         sync.Mutex
	registered []*binding
	consumers  map[string]*binding // of the subscriptions that are open
	guards     []*guard
	held       []func() error // Close of the handlers' publishers
	failures   []error        // of the start
}

// New makes a router. It opens nothing and starts nothing; every fault of the configuration is
// reported at once. A nil logger logs nothing.
func New(cfg Config, logger watermill.LoggerAdapter) (*Router, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	// Watermill waits a little longer than we do, so that our own timeout decides.
	inner, err := message.NewRouter(message.RouterConfig{CloseTimeout: cfg.CloseTimeout + 5*time.Second}, logger)
	if err != nil {
		return nil, err
	}
	r := &Router{
		Router: inner, cfg: cfg, logger: logger,
		closing: make(chan struct{}), done: make(chan struct{}), consumers: map[string]*binding{},
	}
	if cfg.Publisher != nil {
		if r.forwarder, err = outboxstore.NewForwarder(cfg.Outbox, cfg.Publisher, cfg.forwarder(logger)); err != nil {
			return nil, err
		}
	}
	if err := r.arrange(); err != nil {
		return nil, err
	}
	return r, nil
}

// Run checks what can be checked, then handles messages until ctx ends, Close is called or every
// subscription has ended. It returns when the handlers that had begun are done, the forwarder has
// drained, the background workers have stopped and the subscribers are closed, in this order. Run
// may be called once.
func (r *Router) Run(ctx context.Context) error {
	if !r.used.CompareAndSwap(false, true) {
		return ErrUsed
	}
	defer close(r.done)
	if err := r.check(ctx); err != nil {
		return err
	}
	background := r.startWorkers(ctx)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	returned := make(chan struct{})
	var closer sync.WaitGroup
	closer.Go(func() { r.closeWhenAsked(ctx, returned) })
	err := r.Router.Run(ctx)
	close(returned)
	closer.Wait()

	r.beginClosing()
	r.pumps.Wait()
	err = errors.Join(err, background.stop(), r.release(), errors.Join(r.failures...))
	background.panicOn()
	return err
}

// Close ends Run and waits for it. Before Run it makes Run refuse; twice is as good as once.
func (r *Router) Close() error {
	r.beginClosing()
	if !r.used.CompareAndSwap(false, true) {
		<-r.done
	} else {
		close(r.done)
	}
	return nil
}

// closeWhenAsked closes Watermill's router on Close or at the end of ctx. It waits until Watermill
// runs, because its Close blocks on handlers that have not started; it must be called even though
// ctx ends the handlers, because without any handler Watermill looks at nothing else.
func (r *Router) closeWhenAsked(ctx context.Context, returned <-chan struct{}) {
	select {
	case <-r.Running():
	case <-returned:
		return
	}
	select {
	case <-ctx.Done():
	case <-r.closing:
	case <-returned:
		return
	}
	if err := r.Router.Close(); err != nil {
		r.logger.Error("Router did not close in time: a handler is still running; give it a time-out or raise CloseTimeout", err, watermill.LogFields{"close_timeout": r.cfg.CloseTimeout.String()})
	}
}

func (r *Router) beginClosing() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeOnce.Do(func() { close(r.closing) })
}

func (r *Router) fail(err error) {
	r.mu.Lock()
	r.failures = append(r.failures, err)
	r.mu.Unlock()
	if !r.IsRunning() {
		r.beginClosing()
	}
}

// release closes what Watermill would have closed earlier, each subscriber and each handler's
// publisher, and waits until the subscriptions have ended.
func (r *Router) release() error {
	r.mu.Lock()
	guards, held := r.guards, r.held
	r.guards, r.held = nil, nil
	r.mu.Unlock()
	// In a goroutine, because user code that does not return must not hold Run beyond its timeout.
	ended := make(chan error, 1)
	go func() {
		var errs []error
		for _, g := range guards {
			errs = append(errs, g.inner.Close())
		}
		r.drains.Wait()
		ended <- errors.Join(errs...)
	}()
	timeout := time.NewTimer(r.cfg.CloseTimeout)
	defer timeout.Stop()
	var errs []error
	select {
	case err := <-ended:
		errs = append(errs, err)
	case <-timeout.C:
		errs = append(errs, errors.New("router: a subscriber did not end its subscription although its context has ended and it was closed; mend it"))
	}
	for _, closePublisher := range held {
		errs = append(errs, closePublisher())
	}
	return errors.Join(errs...)
}
