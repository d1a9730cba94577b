package outboxstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// hanging is a publisher that does not return for one message.
type hanging struct {
	release chan struct{}
	got     chan string
}

func (h hanging) Publish(_ string, messages ...*message.Message) error {
	if messages[0].UUID == "hang" {
		<-h.release
		return nil
	}
	h.got <- messages[0].UUID
	return nil
}
func (hanging) Close() error { return nil }

// counting counts the claims of the row that hangs.
type counting struct {
	*outboxstore.Memory
	claims atomic.Int32
}

func (c *counting) Claim(ctx context.Context, r outboxstore.ClaimRequest) ([]outboxstore.Claimed, error) {
	claimed, err := c.Memory.Claim(ctx, r)
	for _, row := range claimed {
		if row.Envelope.Message.UUID == "hang" {
			c.claims.Add(1)
		}
	}
	return claimed, err
}

// C5: one publication that hangs holds one worker, however often its lease runs out.
func TestC5_HangingPublicationHoldsOneWorker(t *testing.T) {
	work := uow.NewMemory()
	source := &counting{Memory: outboxstore.NewMemory(work)}
	publisher := hanging{make(chan struct{}), make(chan string, 1)}
	forwarder, err := outboxstore.NewForwarder(source, publisher, outboxstore.ForwarderConfig{
		Workers: 2, Lease: 100 * time.Millisecond, PublishTimeout: time.Millisecond, Poll: 5 * time.Millisecond,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = forwarder.Run(ctx) // a lease that was lost on the way is no matter here
	}()
	stage := func(id string) {
		require.NoError(t, work.Do(t.Context(), func(ctx context.Context) error {
			return source.Publisher().Publish("orders", message.NewMessageWithContext(ctx, id, nil))
		}))
	}
	stage("hang")
	require.Eventually(t, func() bool { return source.claims.Load() >= 3 }, 20*time.Second, time.Millisecond)
	stage("good")
	select {
	case id := <-publisher.got:
		require.Equal(t, "good", id)
	case <-time.After(20 * time.Second):
		t.Error("the row that hangs holds every worker")
	}
	close(publisher.release)
	cancel()
	<-stopped
}
