package outboxstore

import (
	"context"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/watermill-inbox/watermill-inbox/outboxstore"

// traced gives the metadata of msg together with the producer's trace context, that of the message
// or else of ctx, by OpenTelemetry's global propagator, which does nothing unless the program sets
// one. A trace context that the message brings along stays.
func traced(ctx context.Context, msg *message.Message) map[string]string {
	if own := msg.Context(); trace.SpanContextFromContext(own).IsValid() {
		ctx = own
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return msg.Metadata
	}
	propagator := otel.GetTextMapPropagator()
	for _, field := range propagator.Fields() {
		if _, own := msg.Metadata[field]; own {
			return msg.Metadata
		}
	}
	carrier := propagation.MapCarrier{}
	propagator.Inject(ctx, carrier)
	maps.Copy(carrier, msg.Metadata)
	return carrier
}

// publishSpan starts the span of one publication, a child of the producer's.
func publishSpan(ctx context.Context, c Claimed) (context.Context, func(outcome string, err error)) {
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(c.Envelope.Message.Metadata))
	ctx, span := otel.Tracer(scope).Start(ctx, "outbox publish", trace.WithSpanKind(trace.SpanKindProducer))
	if !span.IsRecording() {
		return ctx, func(string, error) { span.End() }
	}
	span.SetAttributes(
		attribute.String("messaging.destination.name", c.Envelope.Topic),
		attribute.String("messaging.message.id", c.Envelope.Message.UUID),
		attribute.String("watermill_inbox.source", c.Envelope.Source),
		attribute.Int64("watermill_inbox.seq", c.Lease.Seq),
		attribute.Int("watermill_inbox.attempt", c.Attempt),
	)
	return ctx, func(outcome string, err error) {
		span.SetAttributes(attribute.String("watermill_inbox.outcome", outcome))
		if err != nil {
			span.SetStatus(codes.Error, outcome)
		}
		span.End()
	}
}
