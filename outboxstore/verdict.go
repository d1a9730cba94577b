package outboxstore

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// verdict is how a session tells a message that is refused from a broker that is down, where the
// publisher does not say. A row that fails is suspected, and its key waits with it. Another row
// that is published meanwhile proves that the broker is up, so the row is to blame. When probes
// many rows fail in a row, or the publisher says that the broker is down, nobody is. When nothing
// is left to try, the rows are tried again later, with no blame and no end.
type verdict struct {
	suspects []suspicion
	fails    int // unexplained failures since something was published
	down     bool
	downs    int   // times that the broker was found to be down since something was published
	err      error // the last failure that counts against no row
}

type suspicion struct {
	lane  []*item
	err   error
	since time.Time
}

// probes is how many rows are tried to find out whether the broker is up.
const probes = 10

// suspect records a failure that says nothing. The caller holds the session's lock, here and below.
func (s *session) suspect(lane []*item, err error) {
	v := &s.verdict
	s.f.counters.add(countUnclassified, lane[0].claimed.Envelope.Topic)
	for _, it := range lane {
		it.state = suspected
	}
	v.suspects = append(v.suspects, suspicion{lane: lane, err: err, since: time.Now()})
	v.fails++
	switch {
	case v.down:
		s.acquit()
	case v.fails >= probes:
		s.goDown(err)
	}
}

// alive records that the broker answered.
func (s *session) alive() {
	v := &s.verdict
	if v.down || v.downs > 0 {
		s.f.cfg.Logger.Info("The broker takes outbox messages again", nil)
		s.again.signal()
	}
	v.fails, v.down, v.downs, v.err = 0, false, 0, nil
}

// goDown records that the broker is down: nothing more is published, and nobody is to blame.
func (s *session) goDown(err error) {
	v := &s.verdict
	v.err = fmt.Errorf("outboxstore: the broker is down: %w", err)
	if !v.down {
		v.down = true
		v.downs++
		s.f.cfg.Logger.Error("The broker takes no outbox messages; forwarding pauses and goes on by itself", brief(err), watermill.LogFields{"times": v.downs})
		s.again.signal()
	}
	s.acquit()
}

// judgeSuspects settles the suspects whose broker was up, by what was published since they were claimed.
func (s *session) judgeSuspects() {
	v := &s.verdict
	left := v.suspects[:0]
	for _, suspect := range v.suspects {
		if s.published > suspect.lane[0].before {
			s.reject(suspect.lane, suspect.err)
		} else {
			left = append(left, suspect)
		}
	}
	v.suspects = left
}

// acquit gives the suspects back with no blame. Each comes again after a delay, so that others are
// tried before it.
func (s *session) acquit() {
	cfg := s.f.cfg
	for _, suspect := range s.verdict.suspects {
		delay := grow(min(time.Second, cfg.MaxPause), cfg.MaxPause, suspect.lane[0].claimed.Attempt-1)
		s.release(suspect.lane, delay)
	}
	s.verdict.suspects = nil
}

// judge is called when nothing is left to try, and settles every suspect.
func (s *session) judge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conclude()
}

func (s *session) conclude() {
	s.judgeSuspects()
	for _, suspect := range s.verdict.suspects {
		s.f.cfg.Logger.Error("Outbox message failed, nothing else was there to publish, so nobody knows why; it is tried again", brief(suspect.err), fields(suspect.lane[0].claimed))
		s.verdict.err = fmt.Errorf("outboxstore: nothing could be published: %w", suspect.err)
	}
	if len(s.verdict.suspects) > 0 {
		s.acquit()
		s.changed.signal()
	}
}

// judgeLate settles suspects for which a stuck publication of another row has kept the verdict
// open too long.
func (s *session) judgeLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, suspect := range s.verdict.suspects {
		if time.Since(suspect.since) > s.f.cfg.PublishTimeout {
			s.conclude()
			return
		}
	}
}

func (s *session) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict.down
}

// failure is what stopped the publishing, if nothing was published since.
func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict.err
}
