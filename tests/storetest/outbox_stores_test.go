package storetest_test

import (
	"slices"
	"testing"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/tests/storetest"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

func TestOutbox(t *testing.T) {
	for _, d := range databases {
		if !slices.Contains([]string{"sqlite", "pq other names", "pgx"}, d.name) {
			continue // claims, write-backs and operations have isolation and transactions of their own
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			open := d.prepare(t)
			on := func(opts ...outboxstore.Option) func(t testing.TB) (store, second storetest.OutboxStore) {
				return func(t testing.TB) (store, second storetest.OutboxStore) {
					work := open(t)
					return outboxstore.New(work), outboxstore.New(work, opts...)
				}
			}
			h := storetest.OutboxHarness{New: on(), Features: d.features}
			if !d.features.SingleWriter {
				h.Impatient = on(outboxstore.LockWait(storetest.ShortWait))
			}
			storetest.Outbox(t, h)
		})
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		storetest.Outbox(t, storetest.OutboxHarness{
			New: func(testing.TB) (store, second storetest.OutboxStore) {
				m := outboxstore.NewMemory(uow.NewMemory())
				return m, m
			},
			Impatient: func(testing.TB) (store, second storetest.OutboxStore) {
				m := outboxstore.NewMemory(uow.NewMemory(), outboxstore.LockWait(storetest.ShortWait))
				return m, m
			},
		})
	})
}
