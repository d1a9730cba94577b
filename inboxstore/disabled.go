package inboxstore

import (
	"context"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// Disabled is a store that remembers nothing: every delivery is fresh, at no cost.
type Disabled struct{}

// TryBegin answers [inbox.Fresh] to every valid key.
func (Disabled) TryBegin(_ context.Context, key inbox.Key) (inbox.Outcome, error) {
	return inbox.Fresh, key.Validate()
}

// Complete does nothing.
func (Disabled) Complete(context.Context, inbox.Key) error { return nil }

// Abandon reports that no row stands.
func (Disabled) Abandon(context.Context, inbox.Key) (bool, error) { return true, nil }
