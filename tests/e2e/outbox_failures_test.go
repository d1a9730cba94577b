package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/tests/testlog"
)

var errBroker = errors.New("the broker says no")

// C6: the broker is down under load. No rejections are spent, the store is not asked over and over,
// and everything is published in the order of its key once the broker is back.
func TestC6_OutageUnderLoad(t *testing.T) {
	const perKey = 20
	pauses := size(12, 8) // of at most 30 s: about two minutes
	for name, failure := range map[string]error{"typed": outboxstore.Unavailable(errBroker), "unclassified": errBroker} {
		t.Run(name, func(t *testing.T) {
			db, _ := openPostgresDSN(t)
			store, keys := newOutbox(db), orderingKeys(size(60, 500))
			var down atomic.Bool
			broker := &receiver{refuse: func(*message.Message) error {
				if down.Load() {
					return failure
				}
				return nil
			}}
			log, source := testlog.New(), &counting{Source: store}
			forwarding(t, source, broker, outboxstore.ForwarderConfig{
				Poll: 50 * time.Millisecond, MaxPause: time.Duration(size(200, 30_000)) * time.Millisecond, MaxRejections: 1, Logger: log,
			})
			appendEntries(t, store, []string{"warm"}, 10)
			require.Eventually(t, func() bool { return broker.count() == 10 }, wait, time.Millisecond)

			down.Store(true)
			for n := range perKey { // the load goes on, half of it before the forwarder has noticed
				if n == perKey/2 {
					require.Eventually(t, func() bool { return log.Count("error", "forwarding pauses") > 0 }, wait, time.Millisecond)
				}
				var batch []outboxstore.Envelope
				for _, key := range keys {
					batch = append(batch, entry(key, n))
				}
				_, err := store.AppendOwn(t.Context(), batch...)
				require.NoError(t, err)
			}
			before, tries := source.calls.Load(), broker.tries.Load()
			begun := log.Count("error", "forwarding pauses")
			require.Eventually(t, func() bool { return log.Count("error", "forwarding pauses") >= begun+pauses }, time.Duration(size(3, 20))*wait, time.Millisecond)
			// Of each probe: one claim that finds rows, one that does not, a write-back; and the
			// renewals, of which there is one in 15 s.
			calls, tried := source.calls.Load()-before, broker.tries.Load()-tries
			t.Logf("%d calls of the store and %d publications in %d pauses", calls, tried, pauses)
			require.LessOrEqual(t, calls, int64(6*(pauses+2)), "the store is asked over and over")
			require.LessOrEqual(t, tried, int64(20*(pauses+2)), "the broker is asked over and over")

			down.Store(false)
			requireForwarded(t, store)
			repeated := requireOrder(t, withKey(broker.sights()), keys, perKey)
			require.Empty(t, repeated)
			for after := int64(0); ; {
				rows, err := store.List(t.Context(), outboxstore.Filter{After: after, Limit: outboxstore.MaxPage})
				require.NoError(t, err)
				if len(rows) == 0 {
					break
				}
				for _, row := range rows {
					require.Zero(t, row.Rejections, row.Envelope.Message.UUID)
				}
				after = rows[len(rows)-1].Seq
			}
		})
	}
}

// withKey drops what is of no ordering key that is looked at.
func withKey(sights []string) []string {
	return slices.DeleteFunc(sights, func(id string) bool { return !strings.HasPrefix(id, "key-") })
}

// counting counts what a forwarder asks of its store.
type counting struct {
	outboxstore.Source
	calls atomic.Int64
}

func (c *counting) Claim(ctx context.Context, r outboxstore.ClaimRequest) ([]outboxstore.Claimed, error) {
	c.calls.Add(1)
	return c.Source.Claim(ctx, r)
}

func (c *counting) Complete(ctx context.Context, l []outboxstore.Lease, keep bool) (int, error) {
	c.calls.Add(1)
	return c.Source.Complete(ctx, l, keep)
}

func (c *counting) Release(ctx context.Context, r []outboxstore.Release) (int, error) {
	c.calls.Add(1)
	return c.Source.Release(ctx, r)
}

func (c *counting) Renew(ctx context.Context, l []outboxstore.Lease, lease time.Duration) (int, error) {
	c.calls.Add(1)
	return c.Source.Renew(ctx, l, lease)
}

func (c *counting) Reject(ctx context.Context, r []outboxstore.Rejection) (int, error) {
	c.calls.Add(1)
	return c.Source.Reject(ctx, r)
}

// C5, C6: one message that the publisher always refuses at the head of a key, and one without a
// key, among many. The others are forwarded; the two end dead, with the error, and requeue
// publishes them.
func TestC5_C6_PoisonAmongMany(t *testing.T) {
	const perKey = 100
	for name, failure := range map[string]error{"typed": outboxstore.Rejected(errBroker), "unclassified": errBroker} {
		t.Run(name, func(t *testing.T) {
			db, _ := openPostgresDSN(t)
			store, keys := newOutbox(db), orderingKeys(100)
			poison := []string{keys[7] + "/0", "/poison"}
			var healed atomic.Bool
			broker := &receiver{refuse: func(msg *message.Message) error {
				if slices.Contains(poison, msg.UUID) && !healed.Load() {
					return fmt.Errorf("%s: %w", msg.UUID, failure)
				}
				return nil
			}}
			free := entry("", 0)
			free.Message.UUID = "/poison"
			_, err := store.AppendOwn(t.Context(), free)
			require.NoError(t, err)
			appendEntries(t, store, keys, perKey)
			forwarding(t, store, broker, outboxstore.ForwarderConfig{
				MinRetry: 50 * time.Millisecond, MaxRetry: 200 * time.Millisecond, Poll: 50 * time.Millisecond, MaxPause: 100 * time.Millisecond,
			})
			// An unclassified failure is judged by what is published beside it: something always comes.
			more := 0
			require.Eventually(t, func() bool {
				stats, err := store.Stats(t.Context())
				require.NoError(t, err)
				if stats.Dead == 2 {
					return true
				}
				_, err = store.AppendOwn(t.Context(), entry("more", more))
				require.NoError(t, err)
				more++
				return false
			}, 4*wait, 50*time.Millisecond)
			require.Eventually(t, func() bool {
				stats, err := store.Stats(t.Context())
				require.NoError(t, err)
				return stats.Pending+stats.Leased == 0
			}, 4*wait, 50*time.Millisecond)

			rows, err := store.List(t.Context(), outboxstore.Filter{State: outboxstore.Dead})
			require.NoError(t, err)
			require.Len(t, rows, 2)
			for i, id := range []string{"/poison", keys[7] + "/0"} {
				require.Equal(t, id, rows[i].Envelope.Message.UUID)
				require.Equal(t, id+": "+errBroker.Error(), rows[i].LastError)
				require.Equal(t, 5, rows[i].Rejections)
			}
			require.Equal(t, len(keys)*perKey-1+more, broker.count(), "all the others, once each")

			healed.Store(true)
			changed, err := store.RequeueAll(t.Context(), outboxstore.Filter{Error: errBroker.Error()})
			require.NoError(t, err)
			require.Equal(t, outboxstore.Changed{Asked: 2, Changed: 2}, changed)
			requireForwarded(t, store)
			sights := broker.sights()
			require.ElementsMatch(t, poison, sights[len(sights)-2:])
			// The rest of the key went on, in order, without its head.
			rest := slices.DeleteFunc(withKey(sights), func(id string) bool { return strings.HasPrefix(id, keys[7]) })
			require.Empty(t, requireOrder(t, rest, slices.Delete(slices.Clone(keys), 7, 8), perKey))
		})
	}
}
