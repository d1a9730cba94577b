package outboxstore_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// keep is a publisher that keeps what it gets.
type keep struct{ got []*message.Message }

func (k *keep) Publish(_ string, messages ...*message.Message) error {
	k.got = append(k.got, messages...)
	return nil
}
func (*keep) Close() error { return nil }

// C12: the producer's trace context travels in the metadata and is the parent of the publish span;
// neither payload nor receipt is in it.
func TestC12_TraceOfTheProducer(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	before, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() { otel.SetTracerProvider(before); otel.SetTextMapPropagator(propagator) })

	work := uow.NewMemory()
	outbox := outboxstore.NewMemory(work)
	ctx, producer := provider.Tracer("test").Start(t.Context(), "place order")
	require.NoError(t, work.Do(ctx, func(ctx context.Context) error {
		return outbox.Publisher().Publish("orders", message.NewMessageWithContext(ctx, "m", []byte("secret")))
	}))
	producer.End()

	publisher := &keep{}
	forwarder, err := outboxstore.NewForwarder(outbox, publisher, outboxstore.ForwarderConfig{})
	require.NoError(t, err)
	n, err := forwarder.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Contains(t, publisher.got[0].Metadata["traceparent"], producer.SpanContext().TraceID().String())

	ended := spans.Ended()
	publish := ended[len(ended)-1]
	require.Equal(t, "outbox publish", publish.Name())
	require.Equal(t, producer.SpanContext().SpanID(), publish.Parent().SpanID())
	for _, a := range publish.Attributes() {
		require.NotContains(t, a.Value.String(), "secret")
	}
}
