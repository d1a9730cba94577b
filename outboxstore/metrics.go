package outboxstore

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The counters, each with the attribute "topic".
const (
	countPublished    = "watermill_inbox.outbox.published"
	countRejected     = "watermill_inbox.outbox.rejected"
	countDead         = "watermill_inbox.outbox.dead"
	countUnclassified = "watermill_inbox.outbox.unclassified"
	countUnavailable  = "watermill_inbox.outbox.unavailable"
	countLeaseLost    = "watermill_inbox.outbox.lease_lost"
	countPanic        = "watermill_inbox.outbox.panic"
)

var descriptions = map[string]string{
	countPublished:    "Messages that the publisher took.",
	countRejected:     "Refusals that were counted against a message.",
	countDead:         "Messages given up after too many refusals.",
	countUnclassified: "Failures of which nobody can tell whether the message or the broker is at fault.",
	countUnavailable:  "Publications that failed because the broker is down.",
	countLeaseLost:    "Outcomes that were not recorded because the lease was lost; the message may be published again.",
	countPanic:        "Panics of the publisher.",
}

// counters hold one instrument a name and one attribute set a topic, made once.
type counters struct {
	instruments map[string]metric.Int64Counter
	attributes  sync.Map // topic → metric.MeasurementOption
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

func (c *counters) add(name, topic string) {
	option, ok := c.attributes.Load(topic)
	if !ok {
		set := attribute.NewSet(attribute.String("topic", topic))
		option, _ = c.attributes.LoadOrStore(topic, metric.WithAttributeSet(set))
	}
	c.instruments[name].Add(context.Background(), 1, option.(metric.MeasurementOption))
}
