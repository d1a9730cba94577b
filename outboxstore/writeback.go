package outboxstore

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// outcomes are what is to be written into the table.
type outcomes struct {
	complete []Lease
	reject   []Rejection
	release  []Release
}

// flush writes what is known. What could not be written is kept for the next time. It goes on
// although ctx has ended: see [Store.Complete].
//
// The order of the three does not matter to ordering keys: whatever part of a key is still leased
// here closes it for the others.
func (s *session) flush(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	todo := s.out
	s.out = outcomes{}
	s.mu.Unlock()

	var errs []error
	write := func(op string, leases []Lease, fn func() (int, error), keep func()) {
		if len(leases) == 0 {
			return
		}
		_, err := fn()
		var lost *LeaseLostError
		if err != nil && !errors.As(err, &lost) {
			errs = append(errs, err)
			s.mu.Lock()
			keep()
			s.mu.Unlock()
			return
		}
		s.written(op, leases, lost)
	}
	write("complete", todo.complete,
		func() (int, error) { return s.f.source.Complete(ctx, todo.complete, !s.f.cfg.DeleteForwarded) },
		func() { s.out.complete = append(todo.complete, s.out.complete...) })
	write("reject", leasesOf(todo.reject, func(r Rejection) Lease { return r.Lease }),
		func() (int, error) { return s.f.source.Reject(ctx, todo.reject) },
		func() { s.out.reject = append(todo.reject, s.out.reject...) })
	write("release", leasesOf(todo.release, func(r Release) Lease { return r.Lease }),
		func() (int, error) { return s.f.source.Release(ctx, todo.release) },
		func() { s.out.release = append(todo.release, s.out.release...) })
	return errors.Join(errs...)
}

// written forgets rows whose outcome is in the table, or will never be.
func (s *session) written(op string, leases []Lease, lost *LeaseLostError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost != nil {
		for _, l := range lost.Lost {
			if it := s.held[l.Seq]; it != nil {
				s.f.counters.add(countLeaseLost, it.claimed.Envelope.Topic)
			}
		}
		s.f.cfg.Logger.Error("Outbox leases were lost before the outcome was written; what was published may be published again",
			lost, watermill.LogFields{"operation": op, "rows": len(lost.Lost)})
	}
	for _, l := range leases {
		// A row that was given back may be held again already, under another receipt.
		if it := s.held[l.Seq]; it != nil && it.claimed.Lease == l {
			delete(s.held, l.Seq)
			if it.claimed.Envelope.OrderingKey != "" {
				s.again.signal()
			}
		}
	}
	s.room.signal()
}

// pending reports whether anything is to be written.
func (s *session) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.out.complete)+len(s.out.reject)+len(s.out.release) > 0
}

// renew extends the leases of what is held: of rows that wait and of outcomes that are not written
// yet, and of a row that is being published until PublishTimeout after its start.
func (s *session) renew(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	start := time.Now()
	s.mu.Lock()
	var leases []Lease
	for _, it := range s.held {
		if it.state != lostLease && (it.started.IsZero() || start.Sub(it.started) < s.f.cfg.PublishTimeout) {
			leases = append(leases, it.claimed.Lease)
		}
	}
	s.mu.Unlock()
	_, err := s.f.source.Renew(ctx, leases, s.f.cfg.Lease)
	var lost *LeaseLostError
	if err != nil && !errors.As(err, &lost) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = start
	for _, l := range leases {
		if it := s.held[l.Seq]; it != nil && it.claimed.Lease == l {
			it.until = start.Add(s.f.cfg.Lease)
		}
	}
	if lost == nil {
		return nil
	}
	for _, l := range lost.Lost {
		it := s.held[l.Seq]
		if it == nil || it.claimed.Lease != l {
			continue
		}
		if it.state == waiting && it.started.IsZero() {
			it.state = lostLease // never published by us
			delete(s.held, l.Seq)
		}
	}
	return err
}

// renewInTurn writes back and renews when a quarter of the lease is over. It is for RunOnce, which
// has no goroutine that does it.
func (s *session) renewInTurn(ctx context.Context) error {
	s.mu.Lock()
	due := time.Since(s.renewed) >= s.f.cfg.Lease/4
	s.mu.Unlock()
	if !due {
		return nil
	}
	return errors.Join(s.flush(ctx), s.renew(ctx))
}

func leasesOf[T any](list []T, lease func(T) Lease) []Lease {
	leases := make([]Lease, len(list))
	for i, entry := range list {
		leases[i] = lease(entry)
	}
	return leases
}
