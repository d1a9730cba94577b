package outboxstore

import (
	"sync"
	"time"
)

const (
	// maxKeys bounds how many ordering keys one claim passes over on its way to one that is due.
	// The next claim goes on from there.
	maxKeys = 1000
	// fullEvery is the time between two claims that look at everything. The others look only at
	// rows that became due at most markLag before the newest one seen. While a long transaction
	// elsewhere keeps the index entries of forwarded rows alive, a claim would otherwise step over
	// all of them every time.
	fullEvery = time.Second
	markLag   = time.Second
	// beforeAnyDue is a time, in microseconds, that every database can tell and no envelope may have.
	beforeAnyDue = -1 << 56
)

// scan remembers where claims have been. It is a hint only: what it misses, because it committed
// late or came from another process, is found by the next full claim.
type scan struct {
	mu     sync.Mutex
	cursor string    // the ordering key after which the next claim looks on
	mark   int64     // due time of the newest row seen, in microseconds
	full   time.Time // of the last claim that looked at everything
}

type view struct {
	cursor string
	from   int64 // microseconds
	full   bool
}

func (s *scan) next() view {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := view{cursor: s.cursor, from: s.mark - markLag.Microseconds(), full: s.mark == 0 || time.Since(s.full) >= fullEvery}
	if v.full {
		v.from = beforeAnyDue
		s.full = time.Now()
	}
	return v
}

func (s *scan) seen(rows []Claimed, stopped string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor = stopped
	for _, c := range rows {
		if c.Envelope.OrderingKey == "" {
			s.mark = max(s.mark, c.Envelope.DueAt.UnixMicro())
		}
	}
}

// appended makes sure that rows of this process which are due since the given time are looked at.
func (s *scan) appended(due int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = min(s.mark, due)
}
