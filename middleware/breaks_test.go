package middleware_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// unknown commits, and says once that the connection broke.
type unknown struct {
	uow.Beginner
	left int
}

type unknownConn struct {
	uow.Conn
	of *unknown
}

func (u *unknown) Begin(ctx context.Context, o sql.TxOptions) (uow.Conn, error) {
	c, err := u.Beginner.Begin(ctx, o)
	return unknownConn{c, u}, err
}

func (c unknownConn) Commit(ctx context.Context) error {
	err := c.Conn.Commit(ctx)
	if c.of.left > 0 {
		c.of.left--
		return driver.ErrBadConn
	}
	return err
}

// passOn is a handler that passes the message on under an id of its own, as many do.
func passOn(runs *int, result error) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		tx, err := uow.Tx[*sql.Tx](msg.Context())
		if err != nil {
			return nil, err
		}
		_, err = tx.Exec(`INSERT INTO effects VALUES ('charged')`)
		*runs++
		msg.UUID = fmt.Sprint("out-", *runs)
		msg.Metadata.Set("seen", "yes")
		return []*message.Message{msg}, errors.Join(err, result)
	}
}

// A1, A8: the key is taken from the message as it was delivered, on every try.
func TestA1_A8_HandlerThatChangesTheMessage(t *testing.T) {
	b := newBench(t)
	b.on(&unknown{uow.SQL(b.db), 1})
	runs := 0
	_, err := b.once(passOn(&runs, nil))(message.NewMessage("1", nil))
	require.NoError(t, err)
	require.Equal(t, []string{"charged"}, b.column(t, `SELECT name FROM effects`))

	msg := message.NewMessage("2", nil)
	_, err = b.once(passOn(&runs, errPlanned))(msg)
	require.ErrorIs(t, err, errPlanned)
	require.Equal(t, "2", msg.UUID, "the dead-letter path must get what was delivered")
	require.Empty(t, msg.Metadata)
}

// A19, A20: a delivery that ends while Retry pauses is interrupted, not dead-lettered.
func TestA19_A20_EndDuringAPauseOfRetry(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	retry := wm.Retry{MaxRetries: 3, InitialInterval: time.Hour, MaxInterval: time.Hour, ShouldRetry: middleware.ShouldRetry}
	handler := middleware.Interrupted(retry.Middleware(nothing(func(*message.Message) error {
		cancel()
		return errPlanned
	})))
	_, err := handler(message.NewMessageWithContext(ctx, "m", nil))
	require.ErrorIs(t, err, inbox.ErrInterrupted)
	require.False(t, middleware.ShouldDeadLetter(err))
}

// A19: a time-out of the user's own that ends the wait for a connection is no failure of a handler
// that has not run.
func TestA19_TimeoutBeforeTheTransactionBegan(t *testing.T) {
	b := newBench(t)
	b.db.SetMaxOpenConns(1)
	busy, err := b.db.Conn(t.Context())
	require.NoError(t, err)
	err = call(t, middleware.Recover(wm.Timeout(time.Millisecond)(b.once(nothing(func(*message.Message) error {
		t.Error("ran")
		return nil
	})))), "m")
	require.NoError(t, busy.Close())
	require.False(t, middleware.ShouldDeadLetter(err), "%v", err)
}

// A5: a handler that ends its goroutine leaves a message that is nacked.
func TestA5_GoexitNacks(t *testing.T) {
	b := newBench(t)
	msg := message.NewMessage("m", nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = middleware.Interrupted(middleware.Recover(b.once(nothing(func(*message.Message) error {
			runtime.Goexit()
			return nil
		}))))(msg)
	}()
	<-done
	select {
	case <-msg.Nacked():
	default:
		t.Fatal("neither acked nor nacked")
	}
	b.requireEffects(t)
}
