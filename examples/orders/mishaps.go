package main

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// How often a run of a handler goes wrong.
const (
	failing   = 0.05
	panicking = 0.02
)

var errMishap = errors.New("a mishap of the demonstration: the handler fails after its writes")

// mishaps make handlers fail and panic now and then, at the worst moment: when all is written and
// nothing is committed.
type mishaps struct {
	dice  *dice
	count tally
}

// handler wraps a handler, and counts how its runs ended.
func (m mishaps) handler(consumer string, next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		ended := false
		defer func() {
			if err != nil || !ended {
				m.count.add(consumer, failed)
			}
		}()
		// Not "returned", but "committed" is what counts as handled.
		if err := uow.AfterCommit(msg.Context(), func() { m.count.add(consumer, handled) }); err != nil {
			return nil, err
		}
		produced, err = next(msg)
		if err == nil {
			err = m.strike(consumer, msg)
		}
		ended = true
		return produced, err
	}
}

// consumerHandler is handler for a handler that returns no messages.
func (m mishaps) consumerHandler(consumer string, next message.NoPublishHandlerFunc) message.NoPublishHandlerFunc {
	wrapped := m.handler(consumer, func(msg *message.Message) ([]*message.Message, error) { return nil, next(msg) })
	return func(msg *message.Message) error {
		_, err := wrapped(msg)
		return err
	}
}

func (m mishaps) strike(consumer string, msg *message.Message) error {
	switch roll := m.dice.roll("mishap "+consumer, msg.Payload); {
	case roll < panicking:
		panic("a mishap of the demonstration: the handler panics after its writes")
	case roll < panicking+failing:
		return errMishap
	}
	return nil
}
