package inboxstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// Memory is a store for unit tests. It keeps the contract of [Store] except durability: staged
// rows stand or fall with the unit of work, a second delivery waits for the first one, and keys
// are compared byte by byte. It is safe for concurrent use. Its unit of work is [uow.NewMemory]; on
// a database's it cannot tell how a transaction ended that the handler ended itself.
type Memory struct {
	work     *uow.UnitOfWork
	lockWait time.Duration

	mu   sync.Mutex
	rows map[identity]*memoryRow
}

// identity is a message id or an idempotency key of a consumer.
type identity struct{ consumer, kind, tenant, value string }

type memoryRow struct {
	ids   []identity // under which it is found
	at    time.Time
	dead  *inbox.Dead
	owner uow.Conn      // the transaction that staged it, nil when committed
	ended chan struct{} // closed when that transaction ends
}

// NewMemory makes an empty store.
func NewMemory(work *uow.UnitOfWork) *Memory {
	return &Memory{work: work, lockWait: DefaultLockWait, rows: map[identity]*memoryRow{}}
}

// UnitOfWork is the unit of work that the store was made on.
func (m *Memory) UnitOfWork() *uow.UnitOfWork { return m.work }

// Validate reports a missing unit of work.
func (m *Memory) Validate() error { return m.work.Validate() }

// Check has nothing to look for.
func (m *Memory) Check(context.Context) error { return m.Validate() }

// TryBegin is as [Store.TryBegin].
func (m *Memory) TryBegin(ctx context.Context, key inbox.Key) (inbox.Outcome, error) {
	if err := key.Validate(); err != nil {
		return inbox.InFlight, err
	}
	conn, err := m.work.Conn(ctx)
	if err != nil {
		return inbox.InFlight, err
	}
	bound := time.NewTimer(m.lockWait)
	defer bound.Stop()
	for {
		blocker, fresh, err := m.stage(ctx, conn, key)
		if err != nil {
			return inbox.InFlight, err
		}
		switch {
		case fresh:
			return inbox.Fresh, nil
		case blocker.owner == nil || blocker.owner == conn:
			return inbox.Duplicate, nil
		}
		select {
		case <-blocker.ended:
		case <-bound.C:
			return inbox.InFlight, nil
		case <-ctx.Done():
			return inbox.InFlight, ctx.Err()
		}
	}
}

// stage puts the row in unless one of the key's identities is taken; then it returns a copy of
// the row that has it.
func (m *Memory) stage(ctx context.Context, conn uow.Conn, key inbox.Key) (blocker memoryRow, fresh bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := identities(key)
	var buried *memoryRow
	for i, id := range ids {
		row, taken := m.rows[id]
		if taken && i == 0 && row.dead != nil {
			buried = row // handled again, as a message that was mended
		} else if taken {
			return *row, false, nil
		}
	}
	row := &memoryRow{ids: ids, at: time.Now(), owner: conn, ended: make(chan struct{})}
	err = m.work.AfterEnd(ctx, func(committed bool) { m.end(row, buried, committed) })
	if err != nil {
		return memoryRow{}, false, errors.Join(errors.New("inboxstore: the memory store needs a transaction of its own"), err)
	}
	for _, id := range ids {
		m.rows[id] = row
	}
	return memoryRow{}, true, nil
}

func (m *Memory) end(row, buried *memoryRow, committed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row.owner = nil
	if !committed {
		for _, id := range row.ids {
			delete(m.rows, id)
		}
		if buried != nil {
			m.rows[row.ids[0]] = buried
		}
	}
	close(row.ended)
}

func identities(key inbox.Key) []identity {
	ids := []identity{{key.Consumer, "id", "", key.MessageID}}
	if key.IdempotencyKey != "" {
		ids = append(ids, identity{key.Consumer, "key", key.Tenant, key.IdempotencyKey})
	}
	return ids
}

// Complete is as [Store.Complete].
func (m *Memory) Complete(context.Context, inbox.Key) error { return nil }

// Abandon is as [Store.Abandon].
func (m *Memory) Abandon(_ context.Context, key inbox.Key) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row, found := m.rows[identities(key)[0]]
	return !found || row.dead != nil, nil
}

// Bury is as [Store.Bury].
func (m *Memory) Bury(_ context.Context, d inbox.Dead) error {
	key := inbox.Key{Consumer: d.Consumer, MessageID: d.MessageID}
	if err := key.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := identities(key)
	if _, taken := m.rows[ids[0]]; !taken {
		m.rows[ids[0]] = &memoryRow{ids: ids, at: time.Now(), dead: &d}
	}
	return nil
}

// Purge is as [Store.Purge].
func (m *Memory) Purge(_ context.Context, keep Retention, limit int) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var processed, dead int64
	for _, row := range m.rows {
		age, purged := keep.Processed, &processed
		if row.dead != nil {
			age, purged = keep.Dead, &dead
		}
		if row.owner != nil || age <= 0 || time.Since(row.at) <= age || *purged >= int64(limit) {
			continue
		}
		for _, id := range row.ids { // a row goes as a whole, and counts once
			delete(m.rows, id)
		}
		*purged++
	}
	return processed + dead, nil
}
