package router

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/middleware"
)

// guard is the subscriber decorator. It owns the context and the Close of the subscriber inside,
// so that closing the router does not cut off handlers that have begun: on closing it passes
// nothing more on, waits for what it has passed on, and only then ends the subscription. Without
// it Watermill ends the messages' contexts first, and with them the handlers' work.
type guard struct {
	inner  message.Subscriber
	router *Router
}

func (r *Router) guard(inner message.Subscriber) (message.Subscriber, error) {
	g := &guard{inner: inner, router: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guards = append(r.guards, g)
	return g, nil
}

// Subscribe starts passing messages on. It keeps a failure for Run or RunHandlers to return instead
// of returning it, because Watermill would leave a goroutine behind; at the start it ends the router.
func (g *guard) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out, err := g.subscribe(ctx, topic)
	if err == nil {
		return out, nil
	}
	g.router.fail(fmt.Errorf("router: subscribe to topic %q: %w", topic, err))
	none := make(chan *message.Message)
	close(none)
	return none, nil
}

func (g *guard) subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	b := &binding{topic: topic}
	inner, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), bindingKey{}, b))
	in, err := g.inner.Subscribe(inner, topic)
	if err != nil {
		cancel()
		return nil, err
	}
	err = g.router.admit(b)
	if err == nil {
		err = g.router.enter()
	}
	if err != nil {
		cancel()
		g.router.drains.Go(func() { drain(in) })
		return nil, err
	}
	s := &subscription{router: g.router, binding: b, in: in, out: make(chan *message.Message), end: cancel}
	g.router.drains.Go(func() { s.run(ctx) })
	return s.out, nil
}

// enter counts a subscription in, unless the router is closing: then nobody would wait for it.
func (r *Router) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.closing:
		return ErrUsed
	default:
		r.pumps.Add(1)
		return nil
	}
}

// leave counts a subscription out. Its consumer name is free again: a handler may be stopped and
// added anew while the router runs.
func (r *Router) leave(b *binding) {
	r.mu.Lock()
	if r.consumers[b.consumer] == b {
		delete(r.consumers, b.consumer)
	}
	r.mu.Unlock()
}

// Close waits until nothing that was passed on is being handled. The subscriber inside is closed
// by Run, after the forwarder: an in-process broker may be the publisher too.
func (g *guard) Close() error {
	g.router.beginClosing()
	g.router.pumps.Wait()
	return nil
}

// subscription passes the messages of one Subscribe on.
type subscription struct {
	router  *Router
	binding *binding
	in      <-chan *message.Message
	out     chan *message.Message
	end     context.CancelFunc
	flight  []passed // on to the handler, perhaps not settled yet
	live    int      // how many of flight were unsettled when last looked
}

func (s *subscription) run(ctx context.Context) {
	s.passOn(ctx)
	s.settle()
	// The context of whatever is still being handled ends here, at the close timeout.
	s.end()
	s.router.leave(s.binding)
	close(s.out)
	s.router.pumps.Done()
	drain(s.in)
}

// passOn returns when the router or the handler is closing, or when the subscription has ended.
func (s *subscription) passOn(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.router.closing:
			return
		case msg, open := <-s.in:
			switch {
			case !open:
				return
			case middleware.IsPhantom(msg):
				msg.Nack()
				continue
			}
			if err := s.router.meet(s.binding, msg); err != nil {
				msg.Nack()
				s.router.fail(err)
				s.router.beginClosing()
				return
			}
			if bindingFrom(msg.Context()) != s.binding {
				msg.SetContext(context.WithValue(msg.Context(), bindingKey{}, s.binding))
			}
			// Once it is passed on the message is the handler's, its id as well.
			p := passed{msg, inbox.Clean(msg.UUID, inbox.MaxID)}
			select {
			case s.out <- msg:
				s.track(p)
			case <-ctx.Done():
				msg.Nack()
			case <-s.router.closing:
				msg.Nack()
			}
		}
	}
}

// passed is a message that was passed on, with the id that it had.
type passed struct {
	*message.Message
	id string
}

// track remembers a message that was passed on, and forgets settled ones whenever the list has
// doubled, so that a message costs the same however many are being handled.
func (s *subscription) track(p passed) {
	if len(s.flight) >= 2*s.live+16 {
		kept := s.flight[:0]
		for _, m := range s.flight {
			if !settled(m.Message) {
				kept = append(kept, m)
			}
		}
		clear(s.flight[len(kept):])
		s.flight, s.live = kept, len(kept)
	}
	s.flight = append(s.flight, p)
}

// settle waits until everything that was passed on is acked or nacked, at most the close timeout.
func (s *subscription) settle() {
	timeout := time.NewTimer(s.router.cfg.CloseTimeout)
	defer timeout.Stop()
	for _, m := range s.flight {
		select {
		case <-m.Acked():
		case <-m.Nacked():
		case <-timeout.C:
			s.logInterrupted()
			return
		}
	}
}

// logInterrupted names the messages whose handlers did not finish in time.
func (s *subscription) logInterrupted() {
	for _, m := range s.flight {
		if !settled(m.Message) {
			s.router.logger.Error("Handler is interrupted at the close timeout; its work is rolled back and the message will be delivered again", nil, watermill.LogFields{
				"message_uuid": m.id, "consumer": s.binding.consumer, "topic": s.binding.topic,
			})
		}
	}
}

func settled(m *message.Message) bool {
	select {
	case <-m.Acked():
	case <-m.Nacked():
	default:
		return false
	}
	return true
}

// drain gives back whatever a subscription still yields until it has ended: some subscribers block
// on handing a message over and do not look at their context meanwhile.
func drain(in <-chan *message.Message) {
	for msg := range in {
		msg.Nack()
	}
}
