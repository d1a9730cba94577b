package outboxstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Metadata under which a published message carries what its envelope says besides: each only when
// the producer set it, and never in the place of a key of the producer's own.
const (
	// MetadataContentType is the envelope's ContentType.
	MetadataContentType = "watermill-inbox-content-type"
	// MetadataSource is the envelope's Source.
	MetadataSource = "watermill-inbox-source"
	// MetadataOccurredAt is the envelope's OccurredAt, as time.RFC3339Nano in UTC.
	MetadataOccurredAt = "watermill-inbox-occurred-at"
)

// outgoing makes the message that the publisher gets: a fresh one each time, because publishers may
// change what they are given. Its context carries the envelope, for [FromMessage].
func outgoing(ctx context.Context, e Envelope) *message.Message {
	m := message.NewMessage(e.Message.UUID, slices.Clone(e.Message.Payload))
	m.Metadata = maps.Clone(e.Message.Metadata)
	m.SetContext(ctx)
	occurred := ""
	if !e.OccurredAt.IsZero() {
		occurred = e.OccurredAt.UTC().Format(time.RFC3339Nano)
	}
	for key, text := range map[string]string{
		MetadataContentType: e.ContentType, MetadataSource: e.Source, MetadataOccurredAt: occurred,
	} {
		if _, own := m.Metadata[key]; text != "" && !own {
			m.Metadata[key] = text
		}
	}
	WithDetails(m, e)
	return m
}

// publish hands one row to the publisher. ctx ends when the forwarder can wait no longer. The
// message's context ends then too, or after PublishTimeout, but not when the publisher has returned:
// an in-process broker may hand it on to the handler.
func (f *Forwarder) publish(ctx context.Context, c Claimed) (err error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(f.cfg.PublishTimeout, cancel)
	defer timer.Stop()
	defer context.AfterFunc(ctx, cancel)()
	ctx, end := publishSpan(own, c)
	outcome := "panic" // unless the publisher returns
	defer func() { end(outcome, err) }()
	err = f.publisher.Publish(c.Envelope.Topic, outgoing(ctx, c.Envelope))
	outcome = "published"
	if err != nil {
		outcome = "failed"
	}
	return err
}
