package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	lookEvery = 5 * time.Millisecond
	// giveUp is how long nothing may move before what is missing counts as lost. It is longer than
	// any lease and any wait for a lock.
	giveUp = 30 * time.Second
)

// runRealPass puts the load through processes on Postgres and RabbitMQ, and kills them.
func runRealPass(ctx context.Context, cfg config, p pass) (r result, err error) {
	place, err := newSite(ctx, cfg, p)
	if err != nil {
		return result{}, err
	}
	defer func() {
		if cfg.keep {
			_, _ = fmt.Fprintf(cfg.stderr, "orders: kept: the schema %s and the topics %s and %s\n", place.schema, place.topics.Placed, place.topics.Charged)
			err = errors.Join(err, place.db.Close())
			return
		}
		err = errors.Join(err, place.leave(context.WithoutCancel(ctx)))
	}()

	workers := newCrew(cfg, place.assignment(cfg, p))
	// The order of these two matters: nothing is removed under processes that still run.
	defer func() { err = errors.Join(err, workers.stop()) }()
	kills, err := supervise(ctx, cfg, p, place, workers)
	if err != nil {
		return result{}, err
	}
	c, err := readCounts(ctx, place.db)
	r = newResult(p.name, newFileTally(place.directory), c, cfg.orders)
	r.kills = kills
	return r, err
}

// supervise starts the processes, kills and starts them until the work is done, and stops them.
// What was delivered and not acknowledged cannot be seen from outside while consumers run, so the
// queues are looked at when all have stopped: what is left there is work too.
func supervise(ctx context.Context, cfg config, p pass, place *site, workers *crew) (kills int, err error) {
	shown := newProgress(cfg.stderr, p.name, cfg.orders)
	defer shown.end()
	plan := killPlan(cfg)
	for {
		if err := workers.start(); err != nil {
			return kills, err
		}
		stalled, err := watch(ctx, cfg, place, workers, &plan, &kills, shown)
		if err := errors.Join(err, workers.stop()); err != nil {
			return kills, err
		}
		waiting, err := place.waiting()
		if err != nil {
			return kills, err
		}
		c, err := readCounts(ctx, place.db)
		if stalled {
			_, _ = fmt.Fprintf(cfg.stderr, "orders: nothing has moved for %s; %d messages are unfinished in the outbox, %d wait in the queues\n",
				giveUp, c.Unfinished, waiting)
		}
		if err != nil || stalled || waiting == 0 && c.Unfinished == 0 {
			return kills, err
		}
	}
}

// killPlan draws the moments at which processes die. They are spread over the progress of the work
// and not over time, so that every one hits work that is under way, however fast the machine is.
func killPlan(cfg config) []float64 {
	random := rand.New(rand.NewPCG(cfg.seed, 0))
	plan := make([]float64, cfg.kills)
	for i := range plan {
		plan[i] = 0.02 + 0.93*random.Float64()
	}
	slices.Sort(plan)
	return plan
}

// watch kills and restarts until every order has its effects, the outbox is drained and nothing waits
// in the queues, or until nothing has moved for so long that something must be lost.
func watch(ctx context.Context, cfg config, place *site, workers *crew, plan *[]float64, kills *int, shown *progress) (stalled bool, err error) {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	var last counts
	moved := time.Now()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		c, err := readCounts(ctx, place.db)
		if err != nil {
			return false, err
		}
		if c != last {
			last, moved = c, time.Now()
		}
		shown.show(c, fmt.Sprintf(", %d kills", *kills))
		if c.done(cfg.orders) {
			if waiting, err := place.waiting(); err != nil || waiting == 0 {
				return false, err
			}
		}
		if time.Since(moved) > giveUp {
			return true, nil
		}
		if len(*plan) > 0 && c.progress(cfg.orders) >= (*plan)[0] {
			killed, err := workers.killOne(c)
			if err != nil {
				return false, err
			}
			if killed {
				*plan, *kills = (*plan)[1:], *kills+1
			}
		}
		if err := workers.check(); err != nil {
			return false, err
		}
	}
}
