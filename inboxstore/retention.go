package inboxstore

import (
	"context"
	"fmt"
	"time"
)

// Retention says how long rows are kept, by the database's clock. 0 keeps them for ever.
type Retention struct {
	// Processed is the time in which a redelivery is recognised as a duplicate. It must be longer
	// than the longest time after which a message may come again: a broker's redelivery, a replay
	// from a dead-letter queue, a consumer that was down.
	Processed time.Duration
	// Dead is how long messages that could not be handled are kept.
	Dead time.Duration
}

// Purge deletes at most limit rows of each kind that are older than their retention, in a
// transaction of its own, and returns how many it deleted. Several processes may purge at once:
// they pass over each other's rows. Call it until it returns less than limit.
func (s *Store) Purge(ctx context.Context, keep Retention, limit int) (int64, error) {
	var total int64
	for _, kind := range []struct {
		state string
		age   time.Duration
	}{{stateProcessed, keep.Processed}, {stateDead, keep.Dead}} {
		if kind.age <= 0 {
			continue
		}
		var n int64
		err := s.own(ctx, func(ctx context.Context) (err error) {
			n, err = s.exec(ctx, "purge", kind.state, kind.age.Microseconds(), limit)
			return err
		})
		if err != nil {
			return total, fmt.Errorf("inboxstore: purge of %s rows: %w", kind.state, err)
		}
		total += n
	}
	return total, nil
}
