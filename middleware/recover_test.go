package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/middleware"
)

func TestA12_PolicyByError(t *testing.T) {
	for _, test := range []struct {
		err         error
		retry, dead bool
	}{
		{errPlanned, true, true},
		{context.DeadlineExceeded, true, true},
		{inbox.ErrNoMessageID, true, true}, // the handler's, about a message that it sends
		{inbox.ErrInFlight, false, false},
		{inbox.ErrInterrupted, false, false},
		{inbox.ErrStore, false, false},
		{inbox.ErrPhantom, false, false},
		// A fault of the message that came to light while the delivery ended is tried again.
		{errors.Join(inbox.ErrInterrupted, inbox.ErrNoMessageID), false, false},
	} {
		err := fmt.Errorf("somewhere: %w", test.err)
		require.Equal(t, test.retry, middleware.ShouldRetry(wm.RetryParams{Err: err}), "retry %v", err)
		require.Equal(t, test.dead, middleware.ShouldDeadLetter(err), "dead-letter %v", err)
	}
}

func TestA12_RecoverMakesPanicsErrors(t *testing.T) {
	for _, value := range []any{"text", errPlanned, 42} {
		err := call(t, middleware.Recover(func(msg *message.Message) ([]*message.Message, error) {
			msg.SetContext(context.Background()) // as a middleware inside leaves it when it is passed by a panic
			panic(value)
		}), "m")
		require.ErrorContains(t, err, fmt.Sprint(value))
	}
	produced := []*message.Message{message.NewMessage("produced", nil)}
	got, err := middleware.Recover(func(*message.Message) ([]*message.Message, error) { return produced, nil })(message.NewMessage("m", nil))
	require.NoError(t, err)
	require.Equal(t, produced, got)
}

func TestA20_EndedDeliveryIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	deliver := func(result error) error {
		_, err := middleware.Interrupted(nothing(func(*message.Message) error { return result }))(message.NewMessageWithContext(ctx, "m", nil))
		return err
	}
	err := deliver(errPlanned)
	require.ErrorIs(t, err, inbox.ErrInterrupted)
	require.ErrorIs(t, err, errPlanned)
	require.NoError(t, deliver(nil), "what is done is done")
	require.Equal(t, errPlanned, call(t, middleware.Interrupted(nothing(func(*message.Message) error { return errPlanned })), "m"))
}

func TestD6_ShortErrorsFitIntoAHeader(t *testing.T) {
	long := fmt.Errorf("%s\x00\xff %w", strings.Repeat("\u20ac", 2000), errPlanned)
	err := call(t, middleware.ShortErrors(nothing(func(*message.Message) error { return long })), "m")
	require.LessOrEqual(t, len(err.Error()), 1024+len("…"))
	require.True(t, utf8.ValidString(err.Error()))
	require.NotContains(t, err.Error(), "\x00")
	require.ErrorIs(t, err, errPlanned)
	require.NoError(t, call(t, middleware.ShortErrors(nothing(func(*message.Message) error { return nil })), "m"))
	require.EqualError(t, call(t, middleware.ShortErrors(nothing(func(*message.Message) error { return errPlanned })), "m"), errPlanned.Error())
}
