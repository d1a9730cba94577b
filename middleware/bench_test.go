package middleware_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// What the middlewares themselves cost a delivery, without a database. "no-op" has a store that
// does nothing, so it is the price of the chain; "memory" adds the keeping of rows.
func BenchmarkDelivery(b *testing.B) {
	work := uow.NewMemory()
	for _, store := range []struct {
		name  string
		fresh middleware.InboxStore
		again middleware.InboxStore
	}{
		{"no-op", stub{outcome: inbox.Fresh}, stub{outcome: inbox.Duplicate}},
		{"memory", inboxstore.NewMemory(work), inboxstore.NewMemory(work)},
	} {
		b.Run(store.name+"/fresh", func(b *testing.B) {
			handler := benchmarked(work, store.fresh)
			messages := make([]*message.Message, b.N)
			for i := range messages {
				messages[i] = message.NewMessage(strconv.Itoa(b.N)+"-"+strconv.Itoa(i), nil)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for _, msg := range messages {
				deliverBenchmarked(b, handler, msg)
			}
		})
		b.Run(store.name+"/duplicate", func(b *testing.B) {
			handler := benchmarked(work, store.again)
			msg := message.NewMessage("m", nil)
			deliverBenchmarked(b, handler, msg)
			b.ReportAllocs()
			for b.Loop() {
				deliverBenchmarked(b, handler, msg)
			}
		})
	}
}

func benchmarked(work *uow.UnitOfWork, store middleware.InboxStore) message.HandlerFunc {
	once := middleware.Inbox(store, middleware.InboxConfig{Consumer: func(*message.Message) string { return "consumer" }})
	handler := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	return middleware.UnitOfWork(work, middleware.UnitOfWorkConfig{})(once(handler))
}

func deliverBenchmarked(b *testing.B, handler message.HandlerFunc, msg *message.Message) {
	msg.SetContext(context.Background())
	if _, err := handler(msg); err != nil {
		require.NoError(b, err)
	}
}
