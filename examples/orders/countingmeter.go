package main

import (
	"context"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// countingMeters is a meter provider that counts skipped deliveries in a tally at once. Those of
// OpenTelemetry's SDK count in memory, which dies with a process that is killed.
type countingMeters struct {
	noop.MeterProvider
	count tally
}

// Meter is of OpenTelemetry's MeterProvider.
func (c countingMeters) Meter(string, ...metric.MeterOption) metric.Meter {
	return countingMeter{count: c.count}
}

type countingMeter struct {
	noop.Meter
	count tally
}

func (c countingMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if name != skippedCounter {
		return noop.Int64Counter{}, nil
	}
	return countedSkips{count: c.count}, nil
}

type countedSkips struct {
	noop.Int64Counter
	count tally
}

func (c countedSkips) Add(_ context.Context, _ int64, options ...metric.AddOption) {
	attributes := metric.NewAddConfig(options).Attributes()
	consumer, _ := attributes.Value(consumerKey)
	c.count.add(consumer.AsString(), skipped)
}
