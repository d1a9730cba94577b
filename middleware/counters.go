package middleware

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scope = "github.com/watermill-inbox/watermill-inbox/middleware"

// The counters, each with the attribute "consumer".
const (
	handled        = "watermill_inbox.handled"
	skipped        = "watermill_inbox.skipped"
	failed         = "watermill_inbox.failed"
	inFlight       = "watermill_inbox.in_flight"
	abandonRefused = "watermill_inbox.abandon_refused"
	buried         = "watermill_inbox.dead"
)

var descriptions = map[string]string{
	handled:        "Messages whose handler succeeded and whose transaction was committed.",
	skipped:        "Deliveries of messages that were handled already.",
	failed:         "Runs of a handler that were rolled back.",
	inFlight:       "Deliveries put off because another one of the message was being handled.",
	abandonRefused: "Failed messages whose handler had committed their transaction itself.",
	buried:         "Messages kept as dead rows.",
}

// counters hold one instrument a name and one attribute set a consumer, made once.
type counters struct {
	instruments map[string]metric.Int64Counter
	attributes  sync.Map // consumer → metric.MeasurementOption
}

func newCounters(provider metric.MeterProvider) *counters {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	meter := provider.Meter(scope)
	c := &counters{instruments: map[string]metric.Int64Counter{}}
	for name, text := range descriptions {
		// The API's only error is an invalid name, and it returns a working no-op with it.
		c.instruments[name], _ = meter.Int64Counter(name, metric.WithDescription(text))
	}
	return c
}

func (c *counters) add(ctx context.Context, name, consumer string) {
	option, ok := c.attributes.Load(consumer)
	if !ok {
		set := attribute.NewSet(attribute.String("consumer", consumer))
		option, _ = c.attributes.LoadOrStore(consumer, metric.WithAttributeSet(set))
	}
	c.instruments[name].Add(ctx, 1, option.(metric.MeasurementOption))
}
