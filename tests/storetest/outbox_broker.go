package storetest

import (
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// broker is a publisher that remembers what it took and fails as it is told.
type broker struct {
	// fail, unless nil, is asked before a message is taken. It may block or panic.
	fail func(topic string, msg *message.Message) error

	mu    sync.Mutex
	taken []*message.Message
	tries int
}

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		b.mu.Lock()
		b.tries++
		b.mu.Unlock()
		if b.fail != nil {
			if err := b.fail(topic, msg); err != nil {
				return err
			}
		}
		b.mu.Lock()
		b.taken = append(b.taken, msg)
		b.mu.Unlock()
	}
	return nil
}

func (b *broker) Close() error { return nil }

// ids gives the ids of what was taken, in order.
func (b *broker) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []string{}
	for _, m := range b.taken {
		out = append(out, m.UUID)
	}
	return out
}

func (b *broker) has(id string) bool { return slices.Contains(b.ids(), id) }

func (b *broker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.taken)
}

func (b *broker) attempts() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tries
}
