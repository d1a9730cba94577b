package outboxstore

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// PublisherConfig configures a drop-in publisher.
type PublisherConfig struct {
	// Describe, unless nil, is called for every message before it is staged. It gets what the
	// message's context carries (see [WithDetails]) and may say more, such as an ordering key taken
	// from the metadata. It must be safe for concurrent use. Default: nil.
	Describe func(e *Envelope)
}

// Publisher is a message.Publisher that stages into the unit of work found in each message's own
// context, so Watermill's cqrs buses work on it unchanged. Without a unit of work Publish returns
// uow.ErrNoTransaction; when the outbox has another payload under the same topic and id, it
// returns [ErrConflict]. A message that is there already with the same payload is no error. What
// is said of [Store.Append] holds. Close does nothing. It is safe for concurrent use as far as the
// messages belong to different units of work.
func (s *Store) Publisher(cfg ...PublisherConfig) message.Publisher {
	return newPublisher(s, cfg)
}

// Stage is Publish for messages whose transaction is the one of ctx, whatever theirs may be.
func (s *Store) Stage(ctx context.Context, topic string, messages ...*message.Message) error {
	return stage(ctx, s, envelopes(topic, messages, nil))
}

// appender is what a publisher needs of a store.
type appender interface {
	Append(ctx context.Context, envelopes ...Envelope) ([]Result, error)
	UnitOfWork() *uow.UnitOfWork
	check(envelopes []Envelope) error
}

func (s *Store) check(envelopes []Envelope) error { return s.limits.check(envelopes) }

type publisher struct {
	store    appender
	describe []func(*Envelope)
}

func newPublisher(store appender, cfg []PublisherConfig) publisher {
	p := publisher{store: store}
	for _, c := range cfg {
		if c.Describe != nil {
			p.describe = append(p.describe, c.Describe)
		}
	}
	return p
}

// Publish looks at everything before it writes anything: each message has a unit of work, and each
// can be kept. Then messages that follow each other in one transaction go in one insert.
func (p publisher) Publish(topic string, messages ...*message.Message) error {
	all := envelopes(topic, messages, p.describe)
	if err := p.store.check(all); err != nil {
		return err
	}
	conns := make([]uow.Conn, len(all))
	for i, e := range all {
		var err error
		if conns[i], err = p.store.UnitOfWork().Conn(e.Message.Context()); err != nil {
			return fmt.Errorf("outboxstore: publish to %q: %w", topic, err)
		}
	}
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && conns[to] == conns[from] {
			to++
		}
		if err := stage(all[from].Message.Context(), p.store, all[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// Close does nothing: the store holds nothing open.
func (publisher) Close() error { return nil }

func envelopes(topic string, messages []*message.Message, describe []func(*Envelope)) []Envelope {
	all := make([]Envelope, len(messages))
	for i, msg := range messages {
		if msg == nil {
			all[i] = Envelope{Topic: topic} // check names it
			continue
		}
		all[i] = FromMessage(topic, msg)
		for _, fn := range describe {
			fn(&all[i])
		}
		all[i].Message = msg
	}
	return all
}

func stage(ctx context.Context, store appender, all []Envelope) error {
	results, err := store.Append(ctx, all...)
	if err != nil {
		return err
	}
	for i, r := range results {
		sameID := r.Envelope.Topic == all[i].Topic && r.Envelope.Message.UUID == all[i].Message.UUID
		if r.Conflict && sameID || r.Envelope.Topic != all[i].Topic {
			return fmt.Errorf("%w: topic %q, id %q, row %d", ErrConflict, all[i].Topic, all[i].Message.UUID, r.Seq)
		}
	}
	return nil
}
