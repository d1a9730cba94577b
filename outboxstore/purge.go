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
	return []purgeKind{{stateForwarded, p.Forwarded}, {stateDead, p.Dead}}
}

func (p PurgePolicy) chunk() int {
	if p.Chunk <= 0 {
		return 1000
	}
	return p.Chunk
}

type purgeKind struct {
	state string
	age   time.Duration
}

// The states that code names; the other two, pending and leased, only the statements know.
const (
	stateForwarded = "forwarded"
	stateDead      = "dead"
)

// Purge deletes at most one chunk of each kind of row that is older than its retention, in
// transactions of its own, and returns how many it deleted. Several processes may purge at once:
// they pass over each other's rows. Call it until it returns less than the chunk.
func (s *Store) Purge(ctx context.Context, policy PurgePolicy) (int64, error) {
	var total int64
	for _, kind := range policy.kinds() {
		if kind.age <= 0 {
			continue
		}
		err := s.own(ctx, func(ctx context.Context) error {
			conn, err := s.work.Conn(ctx)
			if err != nil {
				return err
			}
			n, err := conn.Exec(ctx, s.sql["purge"], kind.state, kind.age.Microseconds(), policy.chunk())
			total += n
			return err
		})
		if err != nil {
			return total, fmt.Errorf("outboxstore: purge of %s rows: %w", kind.state, err)
		}
	}
	return total, s.fault
}
