package outboxstore

import (
	"context"
	"errors"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// wake is a signal that is either set or not.
type wake chan struct{}

func newWake() wake { return make(wake, 1) }

func (w wake) signal() {
	select {
	case w <- struct{}{}:
	default: // it is set already
	}
}

// afterCommit calls fn when the transaction of ctx is committed. Where its owner commits it,
// nobody tells us, and the forwarders find the rows by polling.
func afterCommit(ctx context.Context, work *uow.UnitOfWork, fn func()) error {
	err := work.AfterEnd(ctx, func(committed bool) {
		if committed {
			fn()
		}
	})
	if errors.Is(err, uow.ErrJoined) {
		return nil
	}
	return err
}
