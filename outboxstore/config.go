package outboxstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"go.opentelemetry.io/otel/metric"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// ForwarderConfig configures a forwarder. The zero value has every default.
type ForwarderConfig struct {
	// Owner names the forwarder in the table, for whoever looks. Default: host, process and a
	// random part.
	Owner string
	// Batch is how many rows one claim leases, 1 to 10,000. A running forwarder holds up to two
	// batches at a time. Default: 200.
	Batch int
	// Workers is how many rows are published at a time, 1 to 10,000. A publisher that pipelines
	// does well with a few hundred. Default: 8.
	Workers int
	// PerKey is how many rows of one ordering key one claim leases, 1 to Batch. Default: 50, or
	// Batch if that is less.
	PerKey int
	// Poll is the longest time between two looks for rows of other processes; it is less while
	// rows come. Default: 1 s.
	Poll time.Duration
	// Lease is how long rows are held without a sign of life. It is renewed after a quarter. At
	// least 100 ms; default: 1 min.
	Lease time.Duration
	// PublishTimeout ends the context of a message that is being published, and how long its lease
	// is renewed: a publisher that takes no notice of it loses the row to another forwarder once
	// the lease has run out. Default: 30 s.
	PublishTimeout time.Duration
	// DrainTimeout is how long messages that are being published when Run is told to end may go
	// on. Default: 10 s.
	DrainTimeout time.Duration
	// MaxRejections is the number of refusals and panics at which a row is dead. Default: 5.
	MaxRejections int
	// MinRetry and MaxRetry bound the delay after a rejection, which doubles. Default: 5 s and
	// 5 min.
	MinRetry, MaxRetry time.Duration
	// MaxPause bounds the pause of claiming while the broker or the database is down, which doubles
	// from 1 s. A row whose failures nobody can explain is tried again after at most this time.
	// Default: 30 s.
	MaxPause time.Duration
	// DeleteForwarded deletes rows once they are published, so that appending the same message
	// again is not recognised. Default: they are kept until [Store.Purge] deletes them.
	DeleteForwarded bool
	// Logger takes what an operator should know. It never gets payloads. Default: none.
	Logger watermill.LoggerAdapter
	// MeterProvider takes the counters. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

func (c *ForwarderConfig) setDefaults() {
	if c.Owner == "" {
		host, _ := os.Hostname()
		c.Owner = fmt.Sprintf("%s-%d-%s", inbox.Clean(host, 100), os.Getpid(), strings.ToLower(rand.Text()[:8]))
	}
	if c.Batch == 0 {
		c.Batch = 200
	}
	if c.PerKey == 0 {
		c.PerKey = min(50, c.Batch)
	}
	if c.Workers == 0 {
		c.Workers = 8
	}
	if c.MaxRejections == 0 {
		c.MaxRejections = 5
	}
	for field, value := range map[*time.Duration]time.Duration{
		&c.Poll: time.Second, &c.Lease: time.Minute, &c.PublishTimeout: 30 * time.Second, &c.DrainTimeout: 10 * time.Second,
		&c.MinRetry: 5 * time.Second, &c.MaxRetry: 5 * time.Minute, &c.MaxPause: 30 * time.Second,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

func (c ForwarderConfig) validate() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("outboxstore: ForwarderConfig."+format, args...))
	}
	if text := inbox.TextFault(c.Owner, MaxText); text != "" {
		fault("Owner %s", text)
	}
	for _, n := range []struct {
		field     string
		value, to int
	}{{"Batch", c.Batch, 10_000}, {"Workers", c.Workers, 10_000}, {"PerKey", c.PerKey, c.Batch}, {"MaxRejections", c.MaxRejections, 1_000_000}} {
		if n.value < 1 || n.value > n.to {
			fault("%s is %d; use 1 to %d", n.field, n.value, n.to)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
		least time.Duration
	}{
		{"Poll", c.Poll, time.Millisecond}, {"Lease", c.Lease, 100 * time.Millisecond}, {"PublishTimeout", c.PublishTimeout, time.Millisecond},
		{"DrainTimeout", c.DrainTimeout, time.Millisecond}, {"MinRetry", c.MinRetry, time.Millisecond}, {"MaxRetry", c.MaxRetry, c.MinRetry},
		{"MaxPause", c.MaxPause, time.Millisecond},
	} {
		if d.value < d.least {
			fault("%s is %s; use at least %s", d.field, d.value, d.least)
		}
	}
	return errors.Join(errs...)
}
