package main

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// consumerKey is the attribute by which the library's counters tell consumers apart.
const consumerKey = "consumer"

// skippedCounter is the library's counter of deliveries that the inbox recognised.
const skippedCounter = "watermill_inbox.skipped"

// readSkipped takes the skipped deliveries of each consumer from the library's own counter.
func readSkipped(ctx context.Context, reader *metric.ManualReader, count tally) error {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		return err
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != skippedCounter {
				continue
			}
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok {
				return fmt.Errorf("%s is %T, not a counter", m.Name, m.Data)
			}
			for _, point := range sum.DataPoints {
				consumer, _ := point.Attributes.Value(consumerKey)
				for range point.Value {
					count.add(consumer.AsString(), skipped)
				}
			}
		}
	}
	return nil
}
