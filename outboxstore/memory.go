package outboxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// Memory is an outbox for unit tests. It keeps the contract of [Store] except durability: staged
// rows stand or fall with the unit of work, and a transaction that stages the same message waits
// for the one that did so first. Its clock is the process's. It is safe for concurrent use. Its
// unit of work is uow.NewMemory, or any other whose transactions are not joined.
type Memory struct {
	work   *uow.UnitOfWork
	limits limits
	fault  error
	wake   wake

	mu    sync.Mutex
	seq   int64
	rows  map[int64]*memoryRow
	taken map[identity]*memoryRow
}

type memoryRow struct {
	seq                 int64
	envelope            Envelope
	due                 time.Time
	state               State
	attempt, rejections int
	owner, receipt      string
	lastError           string
	until               time.Time
	finished            time.Time

	staged uow.Conn      // the transaction that staged it, nil when it is committed
	ended  chan struct{} // closed when that transaction has ended
}

// NewMemory makes an empty outbox.
func NewMemory(work *uow.UnitOfWork, opts ...Option) *Memory {
	m := &Memory{
		work: work, limits: defaultLimits, wake: newWake(),
		rows: map[int64]*memoryRow{}, taken: map[identity]*memoryRow{},
	}
	for _, opt := range opts {
		opt(&m.limits)
	}
	m.fault = errors.Join(work.Validate(), m.limits.validate())
	return m
}

// UnitOfWork is the unit of work that the outbox was made on.
func (m *Memory) UnitOfWork() *uow.UnitOfWork { return m.work }

// Validate reports every fault of the configuration at once.
func (m *Memory) Validate() error { return m.fault }

// Check has nothing to look for.
func (m *Memory) Check(context.Context) error { return m.fault }

// Wake is as [Store.Wake].
func (m *Memory) Wake() <-chan struct{} { return m.wake }

// Publisher is as [Store.Publisher].
func (m *Memory) Publisher(cfg ...PublisherConfig) message.Publisher { return newPublisher(m, cfg) }

// Stage is as [Store.Stage].
func (m *Memory) Stage(ctx context.Context, topic string, messages ...*message.Message) error {
	return stage(ctx, m, envelopes(topic, messages, nil))
}

func (m *Memory) check(envelopes []Envelope) error { return m.limits.check(envelopes) }

// AppendOwn is as [Store.AppendOwn].
func (m *Memory) AppendOwn(ctx context.Context, envelopes ...Envelope) (results []Result, err error) {
	err = m.work.Do(uow.Detach(ctx), func(ctx context.Context) error {
		results, err = m.Append(ctx, envelopes...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Append is as [Store.Append].
func (m *Memory) Append(ctx context.Context, envelopes ...Envelope) ([]Result, error) {
	if m.fault != nil {
		return nil, m.fault
	}
	conn, err := m.work.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.limits.check(envelopes); err != nil || len(envelopes) == 0 {
		return nil, err
	}
	fresh := &memoryTx{conn: conn, at: time.Now(), ended: make(chan struct{})}
	if err := m.work.AfterEnd(ctx, func(committed bool) { m.end(fresh, committed) }); err != nil {
		return nil, fmt.Errorf("outboxstore: the memory outbox needs a transaction of its own: %w", err)
	}
	b := newBatch(envelopes)
	place := map[int]int64{}
	m.mu.Lock()
	for _, i := range b.firsts {
		m.seq++
		place[i] = m.seq
	}
	m.mu.Unlock()
	order := slices.Clone(b.firsts)
	slices.SortFunc(order, func(i, j int) int { return envelopes[i].compare(&envelopes[j]) })
	bound := time.NewTimer(m.limits.lockWait)
	defer bound.Stop()
	for _, i := range order {
		if err := m.put(ctx, b, i, place[i], fresh, bound.C); err != nil {
			return nil, err
		}
	}
	b.repeat()
	return b.results, nil
}

// memoryTx is what one call of Append has staged.
type memoryTx struct {
	conn  uow.Conn
	at    time.Time
	rows  []*memoryRow
	ended chan struct{}
}

// errLockWait stands for the database's error when the wait for another transaction is over.
var errLockWait = errors.New("outboxstore: another transaction that staged the same message has not ended")

// put stages slot i, or records the row it collides with, once that one's transaction has ended.
func (m *Memory) put(ctx context.Context, b *batch, i int, seq int64, fresh *memoryTx, bound <-chan time.Time) error {
	for {
		blocker := m.tryPut(ctx, b, i, seq, fresh)
		if blocker == nil {
			return nil
		}
		select {
		case <-blocker:
		case <-bound:
			return errLockWait
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *Memory) tryPut(ctx context.Context, b *batch, i int, seq int64, fresh *memoryTx) (blocker <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := b.envelopes[i]
	for _, id := range e.identities() {
		row, taken := m.taken[id]
		switch {
		case taken && row.staged != nil && row.staged != fresh.conn:
			return row.ended
		case taken:
			b.stored(i, row.envelope.copy(), row.seq)
			return nil
		}
	}
	row := &memoryRow{seq: seq, envelope: e.copy(), state: Pending, due: e.DueAt, staged: fresh.conn, ended: fresh.ended}
	for key, text := range traced(ctx, e.Message) {
		row.envelope.Message.Metadata[key] = text
	}
	row.envelope.Message.SetContext(context.Background())
	if row.due.IsZero() {
		row.due = fresh.at
		if at := e.OccurredAt; !at.IsZero() && at.Before(fresh.at) {
			row.due = at
		}
	}
	row.envelope.DueAt = row.due
	for _, id := range e.identities() {
		m.taken[id] = row
	}
	m.rows[seq] = row
	fresh.rows = append(fresh.rows, row)
	b.results[i] = Result{Outcome: Enqueued, Envelope: e, Seq: seq}
	return nil
}

// end makes the rows of one Append visible, or takes them away.
func (m *Memory) end(tx *memoryTx, committed bool) {
	m.mu.Lock()
	for _, row := range tx.rows {
		row.staged = nil
		if !committed {
			m.remove(row)
		}
	}
	m.mu.Unlock()
	close(tx.ended)
	if committed && len(tx.rows) > 0 {
		m.wake.signal()
	}
}

// remove forgets a row. The caller holds the lock.
func (m *Memory) remove(row *memoryRow) {
	delete(m.rows, row.seq)
	for _, id := range row.envelope.identities() {
		if m.taken[id] == row {
			delete(m.taken, id)
		}
	}
}
