package main

import (
	"errors"
	"fmt"
	"io"
)

// result is what one pass came to.
type result struct {
	name      string // as the table shows it
	orders    int
	charged   int // orders with at least one charge
	consumers []consumerResult
	kills     int
}

// consumerResult is a line of the table.
type consumerResult struct {
	name                                string
	delivered, handled, skipped, failed int
	effects, double, lost               int
}

// newResult puts what was counted beside what stands in the database.
func newResult(name string, t tally, c counts, orders int) result {
	line := func(consumer string, rows, distinct int) consumerResult {
		return consumerResult{
			name:      consumer,
			delivered: t.count(consumer, delivered), handled: t.count(consumer, handled),
			skipped: t.count(consumer, skipped), failed: t.count(consumer, failed),
			effects: rows, double: rows - distinct, lost: orders - distinct,
		}
	}
	return result{name: name, orders: c.Orders, charged: c.Charged, consumers: []consumerResult{
		line(billing, c.Charges, c.Charged),
		line(shipping, c.Shipments, c.Shipped),
	}}
}

func (r result) double() (n int) {
	for _, c := range r.consumers {
		n += c.double
	}
	return n
}

func (r result) lost() (n int) {
	for _, c := range r.consumers {
		n += c.lost
	}
	return n
}

func (r result) skipped() (n int) {
	for _, c := range r.consumers {
		n += c.skipped
	}
	return n
}

// verdict is the last line of the program.
func (r result) verdict() string {
	return fmt.Sprintf("orders=%d charged=%d double=%d lost=%d duplicates_skipped=%d",
		r.orders, r.charged, r.double(), r.lost(), r.skipped())
}

// printTable prints one line a pass and consumer.
func printTable(out io.Writer, results []result) error {
	const heads, numbers = "%-12s  %-8s  %9s  %7s  %7s  %6s  %7s  %14s  %4s\n", "%-12s  %-8s  %9d  %7d  %7d  %6d  %7d  %14d  %4d\n"
	_, err := fmt.Fprintf(out, heads, "pass", "consumer", "delivered", "handled", "skipped", "failed", "effects", "double effects", "lost")
	for _, r := range results {
		for _, c := range r.consumers {
			_, lineErr := fmt.Fprintf(out, numbers, r.name, c.name, c.delivered, c.handled, c.skipped, c.failed, c.effects, c.double, c.lost)
			err = errors.Join(err, lineErr)
		}
	}
	return err
}
