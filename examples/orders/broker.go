package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// How the broker misbehaves: together about a third of the messages come again.
const (
	twins   = 0.15 // delivered twice at the same time, as after a rebalance
	lostAck = 0.20 // delivered again after the handler has committed and acknowledged
)

// broker is a broker in this process that misbehaves as real ones do. It delivers at least once:
// a message that is not acknowledged comes again, and one that is may come again.
type broker struct {
	workers int // deliveries of one consumer that may be open at the same time
	dice    *dice
	count   tally

	mu     sync.Mutex
	queues map[string][]*queue // topic → the queues of its consumers

	open atomic.Int64 // deliveries that wait or are being handled
	puts atomic.Int64 // deliveries ever made
}

func newBroker(workers int, dice *dice, count tally) *broker {
	return &broker{workers: workers, dice: dice, count: count, queues: map[string][]*queue{}}
}

// bind gives the consumer a queue of its own, which from now on gets every message of the topic.
func (b *broker) bind(consumer, topic string) message.Subscriber {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := newQueue()
	b.queues[topic] = append(b.queues[topic], q)
	return &brokerSubscriber{broker: b, queue: q, consumer: consumer, topic: topic}
}

// Publish is of Watermill's Publisher.
func (b *broker) Publish(topic string, messages ...*message.Message) error {
	b.mu.Lock()
	queues := b.queues[topic]
	b.mu.Unlock()
	if len(queues) == 0 {
		return fmt.Errorf("broker: no queue is bound to topic %q", topic)
	}
	for _, msg := range messages {
		for _, q := range queues {
			if b.dice.roll("twins "+topic, msg.Payload) < twins {
				b.put(q, delivery{msg.Copy(), true}, delivery{msg.Copy(), true})
			} else {
				b.put(q, delivery{msg.Copy(), false})
			}
		}
	}
	return nil
}

// Close is of Watermill's Publisher. There is nothing to close: the queues die with the process.
func (b *broker) Close() error { return nil }

func (b *broker) put(q *queue, added ...delivery) {
	b.open.Add(int64(len(added)))
	b.puts.Add(int64(len(added)))
	q.put(added...)
}

// quiet reports whether nothing waits and nothing is being handled. When two calls return the same
// number and true, nothing has happened between them.
func (b *broker) quiet() (puts int64, quiet bool) {
	puts = b.puts.Load()
	return puts, b.open.Load() == 0
}

type brokerSubscriber struct {
	broker          *broker
	queue           *queue
	consumer, topic string
}

// Subscribe is of Watermill's Subscriber.
func (s *brokerSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if topic != s.topic {
		return nil, fmt.Errorf("broker: the queue of %s is bound to topic %q, not to %q", s.consumer, s.topic, topic)
	}
	out := make(chan *message.Message)
	var workers sync.WaitGroup
	for range s.broker.workers {
		workers.Go(func() {
			for {
				d, ok := s.queue.get(ctx)
				if !ok {
					return
				}
				s.deliver(ctx, d, out)
			}
		})
	}
	go func() {
		workers.Wait()
		close(out)
	}()
	return out, nil
}

// Close is of Watermill's Subscriber. The context of Subscribe has ended everything before.
func (s *brokerSubscriber) Close() error { return nil }

// deliver hands out one delivery and waits for the answer. Whatever is put back is put before
// this delivery counts as closed, so that the broker never looks quiet in between.
func (s *brokerSubscriber) deliver(ctx context.Context, d delivery, out chan<- *message.Message) {
	defer s.broker.open.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msg := d.msg.Copy()
	msg.SetContext(ctx)
	select {
	case out <- msg:
		s.broker.count.add(s.consumer, delivered)
	case <-ctx.Done():
		s.broker.put(s.queue, d)
		return
	}
	select {
	case <-msg.Acked():
		if !d.again && s.broker.dice.roll("lost ack "+s.consumer, msg.Payload) < lostAck {
			s.broker.put(s.queue, delivery{d.msg, true})
		}
	case <-msg.Nacked():
		s.broker.put(s.queue, d)
	case <-ctx.Done():
		s.broker.put(s.queue, d)
	}
}
