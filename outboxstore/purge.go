package outboxstore

import (
	"context"
	"fmt"
	"time"
)

// PurgePolicy says how long finished rows are kept, by the database's clock. 0 or less keeps them
// for ever.
type PurgePolicy struct {
	// Forwarded is how long published rows are kept: appending the same message again within that
	// time is recognised.
	Forwarded time.Duration
	// Dead is how long dead rows are kept.
	Dead time.Duration
	// Chunk is how many rows of each kind are deleted at most. Default: 1,000.
	Chunk int
}

func (p PurgePolicy) kinds() []purgeKind {
	return []purgeKind{{Forwarded, p.Forwarded}, {Dead, p.Dead}}
}

func (p PurgePolicy) chunk() int {
	if p.Chunk <= 0 {
		return 1000
	}
	return p.Chunk
}

type purgeKind struct {
	state State
	age   time.Duration
}

// Purge deletes at most one chunk of each kind of row that is older than its retention, in
// transactions of its own, and returns how many it deleted. Several processes may purge at once:
// they pass over each other's rows. Call it until it returns less than the chunk.
func (s *Store) Purge(ctx context.Context, policy PurgePolicy) (int64, error) {
	var total int64
	for _, kind := range policy.kinds() {
		if kind.age <= 0 {
			continue
		}
		var deleted int64
		err := s.own(ctx, func(ctx context.Context) error {
			conn, err := s.work.Conn(ctx)
			if err != nil {
				return err
			}
			deleted, err = conn.Exec(ctx, s.sql["purge"], string(kind.state), kind.age.Microseconds(), policy.chunk())
			return err
		})
		if err != nil {
			return total, fmt.Errorf("outboxstore: purge of %s rows: %w", kind.state, err)
		}
		total += deleted
	}
	return total, s.fault
}
