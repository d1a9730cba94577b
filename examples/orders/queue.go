package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// delivery is a message on its way to one consumer.
type delivery struct {
	msg   *message.Message
	again bool // it has misbehaved once, that is enough
}

// queue holds what waits for one consumer, without bound. The slice travels in a channel, so
// waiting for an item and for the end of a context is one select.
type queue struct {
	waiting chan []delivery // the items, while there are any
	empty   chan struct{}   // a token, while there are none
}

func newQueue() *queue {
	q := &queue{waiting: make(chan []delivery, 1), empty: make(chan struct{}, 1)}
	q.empty <- struct{}{}
	return q
}

func (q *queue) put(added ...delivery) {
	var items []delivery
	select {
	case items = <-q.waiting:
	case <-q.empty:
	}
	q.waiting <- append(items, added...)
}

func (q *queue) get(ctx context.Context) (delivery, bool) {
	select {
	case items := <-q.waiting:
		if len(items) == 1 {
			q.empty <- struct{}{}
		} else {
			q.waiting <- items[1:]
		}
		return items[0], true
	case <-ctx.Done():
		return delivery{}, false
	}
}
