package outboxstore

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// fetch claims rows and hands them to the workers until ctx ends.
func (r *run) fetch(ctx context.Context) {
	cfg := r.f.cfg
	idle := 0
	var trouble trouble
	for ctx.Err() == nil {
		limit, perKey, wait := r.next()
		if limit == 0 {
			sleep(ctx, wait, r.room, r.again)
			continue
		}
		items, err := r.claim(ctx, limit, perKey)
		if err != nil {
			if ctx.Err() == nil {
				sleep(ctx, trouble.failed(r.f, "Outbox rows could not be claimed; it is tried again", err))
			}
			continue
		}
		trouble.over(r.f, "Outbox rows can be claimed again")
		full := len(items) == limit
		if len(items) > 0 {
			idle = 0
		}
		r.enqueue(items)
		if full {
			continue
		}
		// A commit of this process, a key that may go on, or the next look.
		sleep(ctx, grow(max(cfg.Poll/16, time.Millisecond), cfg.Poll, idle), r.f.source.Wake(), r.again)
		idle++
	}
}

// next says how many rows may be claimed now; none until the time given has passed, or there is
// room.
func (r *run) next() (limit, perKey int, wait time.Duration) {
	cfg := r.f.cfg
	r.mu.Lock()
	defer r.mu.Unlock()
	v := &r.verdict
	if v.down {
		if r.pauseEnd.IsZero() {
			r.pauseEnd = time.Now().Add(grow(min(time.Second, cfg.MaxPause), cfg.MaxPause, v.downs-1))
		}
		if wait := time.Until(r.pauseEnd); wait > 0 {
			return 0, 0, wait
		}
		v.down, v.fails = false, 0
	}
	r.pauseEnd = time.Time{}
	switch {
	case v.downs > 0 && r.queued > 0: // a probe is under way
		return 0, 0, cfg.Poll
	case v.downs > 0:
		return min(probes, cfg.Batch), 1, 0
	case len(r.held) > cfg.Batch:
		return 0, 0, cfg.Poll
	}
	return cfg.Batch, cfg.PerKey, 0
}

// write writes outcomes into the table as they come. Those that come while it writes go together
// the next time, so that the batches grow with the load.
func (r *run) write(ctx context.Context) {
	var trouble trouble
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		}
		for r.pending() && ctx.Err() == nil {
			if err := r.flush(ctx); err != nil {
				sleep(ctx, trouble.failed(r.f, "Outcomes of outbox rows could not be written; it is tried again", err))
			} else {
				trouble.over(r.f, "Outcomes of outbox rows can be written again")
			}
		}
	}
}

// keep renews the leases, after a quarter of their time or, when that failed, after an eighth.
func (r *run) keep(ctx context.Context) {
	cfg := r.f.cfg
	wait := cfg.Lease / 4
	var trouble trouble
	for {
		if sleep(ctx, wait); ctx.Err() != nil {
			return
		}
		r.judgeLate()
		if err := r.renew(ctx); err != nil {
			trouble.failed(r.f, "Outbox leases could not be renewed", err)
			wait = cfg.Lease / 8
		} else {
			trouble.over(r.f, "Outbox leases can be renewed again")
			wait = cfg.Lease / 4
		}
	}
}

// trouble counts the failures of one kind in a row. The database may be down for long: the lines
// in the log get rare as the pauses get long.
type trouble int

func (t *trouble) failed(f *Forwarder, text string, err error) (pause time.Duration) {
	pause = grow(min(time.Second, f.cfg.MaxPause), f.cfg.MaxPause, int(*t))
	*t++
	f.cfg.Logger.Error(text, brief(err), watermill.LogFields{"failures": int(*t), "pause": pause.String()})
	return pause
}

func (t *trouble) over(f *Forwarder, text string) {
	if *t > 0 {
		f.cfg.Logger.Info(text, watermill.LogFields{"failures": int(*t)})
	}
	*t = 0
}
