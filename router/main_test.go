package router_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/router"
	"github.com/watermill-inbox/watermill-inbox/tests/testlog"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const wait = 10 * time.Second

// bench is a router over memory stores and an in-process broker that the router takes for a real
// one, because it is wrapped.
type bench struct {
	*router.Router
	cfg    router.Config
	log    *testlog.Logger
	broker *gochannel.GoChannel
	inbox  *inboxstore.Memory
	outbox *outboxstore.Memory
}

// wrapped hides the transport's type.
type wrapped struct{ message.Subscriber }

func newBench(t *testing.T, change ...func(*router.Config)) *bench {
	b := prepareBench(change...)
	r, err := router.New(b.cfg, b.log)
	require.NoError(t, err)
	b.Router = r
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		require.NoError(t, b.broker.Close())
	})
	return b
}

func prepareBench(change ...func(*router.Config)) *bench {
	work := uow.NewMemory()
	b := &bench{
		log: testlog.New(), inbox: inboxstore.NewMemory(work), outbox: outboxstore.NewMemory(work),
		broker: gochannel.NewGoChannel(gochannel.Config{}, nil),
	}
	b.cfg = router.Config{
		UnitOfWork: work, Inbox: b.inbox, Outbox: b.outbox, Publisher: b.broker,
		Retry: router.Retry{Tries: 1}, CloseTimeout: wait,
	}
	for _, c := range change {
		c(&b.cfg)
	}
	return b
}

func (b *bench) subscriber() message.Subscriber { return wrapped{b.broker} }

// start runs the router and returns a function that waits for its end.
func (b *bench) start(t *testing.T, ctx context.Context) (stopped func() error) {
	result := make(chan error, 1)
	go func() { result <- b.Run(ctx) }()
	select {
	case <-b.Running():
	case err := <-result:
		require.NoError(t, err, "the router did not start")
	}
	return func() error {
		select {
		case err := <-result:
			return err
		case <-time.After(2 * wait):
			require.FailNow(t, "the router did not stop")
			return nil
		}
	}
}

func (b *bench) publish(t *testing.T, topic, id string) {
	require.NoError(t, b.broker.Publish(topic, message.NewMessage(id, []byte("{}"))))
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(wait):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func nothing(*message.Message) error { return nil }
