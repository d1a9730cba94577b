package outboxstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// One statement takes at most this many rows and bytes: enough to be fast, small enough for any
// server's memory.
const (
	chunkRows  = 1000
	chunkBytes = 4 << 20
)

// insert stages the rows of the given slots. Where several transactions can write at a time, rows
// go in by identity, across all chunks of a call: see [Envelope.compare]. Their numbers follow the
// order given all the same; several chunks therefore take them in advance.
func (s *Store) insert(ctx context.Context, b *batch, slots []int) error {
	place := make(map[int]int, len(slots)) // slot → place in the order given
	for n, i := range slots {
		place[i] = n
	}
	_, concurrent := s.sql["reserve"]
	order := slots
	if concurrent {
		order = slices.Clone(slots)
		slices.SortFunc(order, func(i, j int) int { return b.envelopes[i].compare(&b.envelopes[j]) })
	}
	chunks, err := s.chunks(ctx, b, order)
	if err != nil {
		return err
	}
	var numbers []int64
	if concurrent && len(chunks) > 1 {
		if numbers, err = s.reserve(ctx, len(slots)); err != nil {
			return err
		}
	}
	slotOf := make(map[identity]int, len(slots))
	for _, i := range slots {
		slotOf[b.envelopes[i].identities()[0]] = i
	}
	for _, chunk := range chunks {
		for at := range chunk.rows {
			n := place[chunk.slots[at]]
			chunk.rows[at].N, chunk.rows[at].Place = n, at
			if numbers != nil {
				chunk.rows[at].Seq = &numbers[n]
			}
		}
		if err := s.insertChunk(ctx, b, chunk.rows, slotOf); err != nil {
			return err
		}
	}
	return nil
}

type chunk struct {
	slots []int
	rows  []wireRow
}

func (s *Store) chunks(ctx context.Context, b *batch, order []int) ([]chunk, error) {
	var chunks []chunk
	size := 0
	for _, i := range order {
		e := &b.envelopes[i]
		metadata, err := encodeMetadata(traced(ctx, e.Message))
		if err != nil {
			return nil, err
		}
		bytes := len(e.Message.Payload) + len(metadata)
		if len(chunks) == 0 || len(chunks[len(chunks)-1].slots) == chunkRows || size+bytes > chunkBytes {
			chunks = append(chunks, chunk{})
			size = 0
		}
		last := &chunks[len(chunks)-1]
		last.slots = append(last.slots, i)
		last.rows = append(last.rows, encodeRow(e, metadata))
		size += bytes
	}
	return chunks, nil
}

func (s *Store) reserve(ctx context.Context, n int) (numbers []int64, err error) {
	err = s.rows(ctx, "reserve", []any{n}, func(scan scanFunc) error {
		var seq int64
		defer func() { numbers = append(numbers, seq) }()
		return scan(&seq)
	})
	if err == nil && len(numbers) != n {
		err = fmt.Errorf("%d numbers were reserved, not %d", len(numbers), n)
	}
	slices.Sort(numbers)
	return numbers, err
}

func (s *Store) insertChunk(ctx context.Context, b *batch, rows []wireRow, slotOf map[identity]int) error {
	list, err := encodeList(rows)
	if err != nil {
		return err
	}
	return s.rows(ctx, "append", []any{lockBound(s.limits.lockWait), list}, func(scan scanFunc) error {
		var fresh, restored *string
		if err := scan(&fresh, &restored); err != nil || fresh == nil {
			return err
		}
		return b.enqueued(*fresh, slotOf)
	})
}

// enqueued records rows that are new, from a JSON array of [seq, topic, id, due].
func (b *batch) enqueued(fresh string, slotOf map[identity]int) error {
	var rows [][4]json.RawMessage
	if err := json.Unmarshal([]byte(fresh), &rows); err != nil {
		return err
	}
	for _, row := range rows {
		var (
			seq, due  int64
			topic, id string
		)
		for column, dest := range []any{&seq, &topic, &id, &due} {
			if err := json.Unmarshal(row[column], dest); err != nil {
				return err
			}
		}
		i, ok := slotOf[identity{"id", topic, id}]
		if !ok {
			return fmt.Errorf("row %d was returned, but not given", seq)
		}
		b.results[i] = Result{Outcome: Enqueued, Envelope: b.envelopes[i], Seq: seq}
		b.due = append(b.due, due)
	}
	return nil
}

// find looks up the rows that the given slots collided with. A slot stays open when there is none.
func (s *Store) find(ctx context.Context, b *batch, slots []int) error {
	for part := range slices.Chunk(slots, chunkRows) {
		wanted := make([]wireIdentity, len(part))
		for n, i := range part {
			e := &b.envelopes[i]
			wanted[n] = wireIdentity{N: i, Topic: e.Topic, ID: e.Message.UUID, Tenant: e.Tenant, Key: optional(e.IdempotencyKey)}
		}
		list, err := encodeList(wanted)
		if err != nil {
			return err
		}
		err = s.rows(ctx, "find", []any{list}, func(scan scanFunc) error {
			var i int
			var r record
			if err := scan(append([]any{&i}, r.dest()...)...); err != nil {
				return err
			}
			e, _ := r.envelope() // that it can be decoded matters to whoever publishes it
			b.stored(i, e, r.seq)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func lockBound(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }
