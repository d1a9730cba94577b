package outboxstore

import (
	"context"
	"fmt"
	"time"
)

// StatsLimit bounds the counts of [Stats], so that asking costs the same whatever the backlog is.
const StatsLimit = 10_000

// Stats is the state of the outbox, by partial indexes that hold no forwarded row. A count of
// [StatsLimit] or more means at least that many.
type Stats struct {
	// Pending rows wait, due or delayed. Leased rows are being published. Dead rows were refused.
	Pending, Leased, Dead int64
	// OldestAge is how long the oldest pending row has been due; 0 when none is. Of rows with an
	// ordering key only the first [StatsLimit] count.
	OldestAge time.Duration
}

// Stats counts, in a transaction of its own.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	var stats Stats
	err := s.own(ctx, func(ctx context.Context) error {
		return s.rows(ctx, "stats", []any{StatsLimit}, func(scan scanFunc) error {
			var age *int64
			if err := scan(&stats.Pending, &stats.Leased, &stats.Dead, &age); err != nil {
				return err
			}
			if age != nil {
				stats.OldestAge = time.Duration(*age) * time.Microsecond
			}
			return nil
		})
	})
	if err != nil {
		return Stats{}, fmt.Errorf("outboxstore: stats: %w", err)
	}
	return stats, nil
}
