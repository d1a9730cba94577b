package main

import (
	"fmt"
	"math/rand/v2"
)

// crew is the processes of one pass.
type crew struct {
	cfg     config
	given   assignment
	random  *rand.Rand
	members []*process
}

// The roles of the processes besides the two consumers.
const (
	producing  = "orders"
	forwarding = "forwarder"
)

// roster is who works: two of everything that may compete, so that what one of them leaves behind
// when it is killed meets another one that goes on.
var roster = []string{producing, billing, billing, shipping, shipping, forwarding, forwarding}

func newCrew(cfg config, given assignment) *crew {
	return &crew{cfg: cfg, given: given, random: rand.New(rand.NewPCG(cfg.seed, 1))}
}

func (c *crew) start() error {
	for _, role := range roster {
		member, err := startProcess(c.cfg, role, c.given)
		if err != nil {
			return err
		}
		c.members = append(c.members, member)
	}
	return nil
}

// killOne kills one process that is at work and starts it again. It reports false when every one
// that has work is still starting.
func (c *crew) killOne(at counts) (bool, error) {
	var candidates []int
	for i, member := range c.members {
		if member.ready() && !member.finished() && c.hasWork(member.role, at) {
			candidates = append(candidates, i)
		}
	}
	if len(candidates) == 0 {
		return false, nil
	}
	victim := candidates[c.random.IntN(len(candidates))]
	if !c.members[victim].kill() {
		return false, nil // it ended by itself a moment before
	}
	replacement, err := startProcess(c.cfg, c.members[victim].role, c.given)
	if err != nil {
		return false, err
	}
	c.members[victim] = replacement
	return true, nil
}

func (c *crew) hasWork(role string, at counts) bool {
	switch role {
	case producing:
		return at.Orders < c.cfg.orders
	case billing:
		return at.Charged < c.cfg.orders
	case shipping:
		return at.Shipped < c.cfg.orders
	}
	return true
}

// check fails when a process ended that nobody killed and that had not finished.
func (c *crew) check() error {
	for _, member := range c.members {
		if member.finished() && (member.role != producing || member.err != nil) {
			return fmt.Errorf("the process %s ended by itself: %w\n%s", member.role, member.err, member.log)
		}
	}
	return nil
}

// stop lets every process finish what it has begun, and waits for them.
func (c *crew) stop() error {
	for _, member := range c.members {
		member.finish()
	}
	var first error
	for _, member := range c.members {
		<-member.ended
		if member.err != nil && first == nil {
			first = fmt.Errorf("the process %s did not stop cleanly: %w\n%s", member.role, member.err, member.log)
		}
	}
	c.members = nil
	return first
}
