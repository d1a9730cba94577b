package outboxstore

import (
	"context"
	"errors"
	"sync"
	"time"
)

// session is what one Run or RunOnce holds: the rows under lease, and what became of them. Its
// methods are safe for concurrent use.
type session struct {
	f *Forwarder

	mu        sync.Mutex
	held      map[int64]*item // by number; until the outcome is in the table
	out       outcomes        // to be written
	published int64
	verdict   verdict
	renewed   time.Time // when the leases were claimed or renewed last

	writing sync.Mutex // one write at a time: renewal and outcome would lock rows in different order
	changed wake       // something is to be written
	room    wake       // something has been written, so fewer rows are held
	again   wake       // more may be due than the last claim saw: a key went on, or the broker is back
}

func newSession(f *Forwarder) *session {
	return &session{f: f, held: map[int64]*item{}, changed: newWake(), room: newWake(), again: newWake()}
}

// claim leases rows and takes them into the session.
func (s *session) claim(ctx context.Context, limit, perKey int) ([]*item, error) {
	start := time.Now() // before the database's clock is read, so the lease lasts longer than we think
	claimed, err := s.f.source.Claim(ctx, ClaimRequest{Owner: s.f.cfg.Owner, Limit: limit, Lease: s.f.cfg.Lease, PerKey: min(perKey, limit)})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 {
		s.renewed = start
	}
	items := make([]*item, 0, len(claimed))
	for _, c := range claimed {
		if earlier := s.held[c.Lease.Seq]; earlier != nil && !earlier.started.IsZero() {
			// Its lease has run out while a publisher of ours still hangs on it. Another worker would
			// hang as well, until none is left.
			s.out.release = append(s.out.release, Release{Lease: c.Lease, Delay: s.f.cfg.PublishTimeout})
			s.changed.signal()
			continue
		}
		it := &item{claimed: c, until: start.Add(s.f.cfg.Lease), before: s.published}
		items = append(items, it)
		s.held[c.Lease.Seq] = it
	}
	return items, nil
}

// one publishes the first row of a lane, and reports whether the next one may follow. When it
// fails, the others share its fate: they are given back, or wait with it for the verdict. ctx is the
// publisher's and ends only when the session can wait for it no longer.
func (s *session) one(ctx context.Context, lane []*item) bool {
	it := lane[0]
	if !s.start(it) {
		s.giveBack(lane)
		return false
	}
	if fault := it.claimed.Fault; fault != nil {
		s.bury(it, fault)
		return true
	}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: seen here, and it goes on
			s.panicked(lane)
		}
	}()
	err := s.f.publish(ctx, it.claimed)
	returned = true
	return s.finish(ctx, lane, err)
}

// start reports whether the row is still ours, and marks it as being published. A process that was
// stopped for longer than the lease must not publish what another one has published since.
func (s *session) start(it *item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.state != waiting || time.Now().After(it.until) {
		return false
	}
	it.started = time.Now()
	return true
}

// finish records what became of a publication.
func (s *session) finish(ctx context.Context, lane []*item, err error) (goOn bool) {
	it, topic := lane[0], lane[0].claimed.Envelope.Topic
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.signal()
	it.started = time.Time{}
	switch {
	case err == nil:
		s.f.counters.add(countPublished, topic)
		s.published++
		s.settle(it)
		s.out.complete = append(s.out.complete, it.claimed.Lease)
		s.alive()
		s.judgeSuspects()
		return true
	case errors.Is(err, ErrRejected):
		s.alive()
		s.reject(lane, err)
	case errors.Is(err, ErrUnavailable):
		s.f.counters.add(countUnavailable, topic)
		s.release(lane, 0)
		s.goDown(err)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		s.release(lane, 0) // interrupted: nobody's fault
	default:
		s.suspect(lane, err)
	}
	return false
}

// panicked counts the panic against the row, and leaves its lease to expire: this process may be
// about to end, and the row had better not follow it at once into the next one.
func (s *session) panicked(lane []*item) {
	it := lane[0]
	s.f.counters.add(countPanic, it.claimed.Envelope.Topic)
	s.f.cfg.Logger.Error("The outbox publisher panicked", errPanic, fields(it.claimed))
	s.mu.Lock()
	defer s.mu.Unlock()
	it.started = time.Time{}
	s.settle(it)
	s.out.reject = append(s.out.reject, Rejection{Lease: it.claimed.Lease, Error: errPanic.Error(), Allowed: s.f.cfg.MaxRejections, Hold: true})
	s.release(lane[1:], 0)
}

var errPanic = errors.New("outboxstore: the publisher panicked")

// bury makes a row dead that cannot be decoded, so that it holds up nobody.
func (s *session) bury(it *item, fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.signal()
	it.started = time.Time{}
	s.settle(it)
	s.f.counters.add(countDead, it.claimed.Envelope.Topic)
	s.f.cfg.Logger.Error("Outbox message cannot be decoded and is dead", fault, fields(it.claimed))
	s.out.reject = append(s.out.reject, Rejection{Lease: it.claimed.Lease, Error: fault.Error(), Allowed: 1})
}

// waits reports whether the row waits to be published.
func (s *session) waits(it *item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return it.state == waiting
}

// giveBack releases rows that wait.
func (s *session) giveBack(items []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.signal()
	for _, it := range items {
		if it.state == waiting && it.started.IsZero() {
			s.release([]*item{it}, 0)
		}
	}
}

// giveBackAll releases everything that is not being published and has no outcome.
func (s *session) giveBackAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acquit()
	for _, it := range s.held {
		if it.state == waiting && it.started.IsZero() {
			s.release([]*item{it}, 0)
		}
	}
}

func (s *session) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published
}

// settle marks a row whose outcome is known. The caller holds the lock, here and below.
func (s *session) settle(it *item) { it.state = settled }

// release gives rows back, the first one after a delay.
func (s *session) release(lane []*item, delay time.Duration) {
	for i, it := range lane {
		if i > 0 {
			delay = 0
		}
		s.settle(it)
		s.out.release = append(s.out.release, Release{Lease: it.claimed.Lease, Delay: delay})
	}
}

// reject counts a refusal of the first row and gives the others back.
func (s *session) reject(lane []*item, err error) {
	c, cfg := lane[0].claimed, s.f.cfg
	s.f.counters.add(countRejected, c.Envelope.Topic)
	if c.Rejections+1 >= cfg.MaxRejections {
		s.f.counters.add(countDead, c.Envelope.Topic)
		cfg.Logger.Error("Outbox message was refused too often and is dead", brief(err), fields(c))
	} else {
		cfg.Logger.Error("Outbox message was refused, it is tried again later", brief(err), fields(c))
	}
	s.settle(lane[0])
	s.out.reject = append(s.out.reject, Rejection{
		Lease: c.Lease, Error: err.Error(), Allowed: cfg.MaxRejections, Delay: grow(cfg.MinRetry, cfg.MaxRetry, c.Rejections),
	})
	s.release(lane[1:], 0)
}
