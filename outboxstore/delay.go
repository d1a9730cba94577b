package outboxstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// grow doubles from low with every step, up to high, and takes 20 % more or less at random, so that
// what failed together does not come back together. It is never below 80 % of low nor above high.
func grow(low, high time.Duration, steps int) time.Duration {
	d := low
	for ; steps > 0 && d < high; steps-- {
		if d *= 2; d <= 0 { // more than a Duration holds
			d = high
		}
	}
	d = min(d, high)
	return min(high, d-d/5+rand.N(d/5*2+1))
}

// sleep waits for d, for the end of ctx or for one of the signals. A nil signal never comes.
func sleep(ctx context.Context, d time.Duration, signals ...<-chan struct{}) {
	for len(signals) < 3 {
		signals = append(signals, nil)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-signals[0]:
	case <-signals[1]:
	case <-signals[2]:
	}
}
