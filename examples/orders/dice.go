package main

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
)

// dice decides what goes wrong. A roll depends on the seed, on what is asked about which message,
// and on how often that was asked, but not on the order in which goroutines ask: the same seed
// hits the same messages.
type dice struct {
	seed  uint64
	mu    sync.Mutex
	asked map[uint64]uint64
}

func newDice(seed uint64) *dice { return &dice{seed: seed, asked: map[uint64]uint64{}} }

// roll gives a number from 0 up to 1. The message is named by its payload, because its id is new
// in every run.
func (d *dice) roll(what string, payload []byte) float64 {
	hash := fnv.New64a()
	_, _ = hash.Write(append([]byte(what+"\x00"), payload...))
	key := hash.Sum64()
	d.mu.Lock()
	d.asked[key]++
	times := d.asked[key]
	d.mu.Unlock()
	return rand.New(rand.NewPCG(d.seed^key, times)).Float64()
}
