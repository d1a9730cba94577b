package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// parallel makes several subscriptions of one queue look like one. Watermill's subscriber for
// RabbitMQ waits for the answer to each message before it hands out the next one.
type parallel struct {
	message.Subscriber
	consumer      string
	subscriptions int
	count         tally
}

// Subscribe is of Watermill's Subscriber.
func (p parallel) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan *message.Message)
	var open sync.WaitGroup
	for range p.subscriptions {
		in, err := p.Subscriber.Subscribe(ctx, topic)
		if err != nil {
			cancel()
			return nil, err
		}
		open.Go(func() {
			for msg := range in {
				p.count.add(p.consumer, delivered)
				out <- msg
			}
		})
	}
	go func() {
		open.Wait()
		cancel()
		close(out)
	}()
	return out, nil
}

// slowAck holds a message for a few milliseconds when its work is committed, as a slow network
// does: a process that is killed meanwhile has committed and not acknowledged.
func slowAck(next message.HandlerFunc) message.HandlerFunc {
	const slowest = 10 * time.Millisecond
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		time.Sleep(rand.N(slowest))
		return produced, err
	}
}
