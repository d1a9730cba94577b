package middleware_test

import (
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// ends is a handler that has its effect and ends the transaction itself, the first time it runs.
func ends(t *testing.T, end func(*sql.Tx) error, result error) message.NoPublishHandlerFunc {
	ended := false
	return func(msg *message.Message) error {
		if err := effect(msg); err != nil || ended {
			return err
		}
		ended = true
		tx, err := uow.Tx[*sql.Tx](msg.Context())
		require.NoError(t, err)
		require.NoError(t, end(tx))
		return result
	}
}

func TestA9_HandlerCommitsAndSucceeds(t *testing.T) {
	b := newBench(t)
	s := start(t, ends(t, (*sql.Tx).Commit, nil), b.chain(middleware.Recover)...)
	require.True(t, s.deliver(t, "m", ""))
	require.True(t, s.deliver(t, "m", ""))
	b.requireEffects(t, "m")
	require.Equal(t, 1, b.log.Count("info", "WARNING: the handler committed the transaction itself", "message_uuid=m", "consumer=consumer"))
	require.Zero(t, b.log.Count("error"))
	b.requireCounts(t, "consumer", map[string]int64{"watermill_inbox.handled": 1, "watermill_inbox.skipped": 1})
}

func TestA9_HandlerCommitsAndFails(t *testing.T) {
	b := newBench(t)
	s := start(t, ends(t, (*sql.Tx).Commit, errPlanned), b.chain(middleware.Recover)...)
	require.False(t, s.deliver(t, "m", ""))
	require.True(t, s.deliver(t, "m", ""), "what was committed with the row would be done twice")
	b.requireEffects(t, "m")
	require.Equal(t, 1, b.log.Count("error", "cannot be abandoned", "its redelivery will be skipped", "what had not run never will",
		errPlanned.Error(), "message_uuid=m", "consumer=consumer"))
	require.Zero(t, b.log.Count("info", "WARNING"))
	b.requireCounts(t, "consumer", map[string]int64{
		"watermill_inbox.failed": 1, "watermill_inbox.abandon_refused": 1, "watermill_inbox.skipped": 1,
	})
}

func TestA9_HandlerCommitsAndPanics(t *testing.T) {
	b := newBench(t)
	s := start(t, func(msg *message.Message) error {
		_ = ends(t, (*sql.Tx).Commit, nil)(msg)
		panic("planned")
	}, b.chain(middleware.Recover)...)
	require.False(t, s.deliver(t, "m", ""))
	require.True(t, s.deliver(t, "m", ""))
	require.Equal(t, 1, b.log.Count("error", "cannot be abandoned"))
	b.requireEffects(t, "m")
}

// Acked it would be lost: its row went with the rollback.
func TestA9_HandlerRollsBackAndSucceeds(t *testing.T) {
	b := newBench(t)
	s := start(t, ends(t, (*sql.Tx).Rollback, nil), b.chain(middleware.Recover)...)
	require.False(t, s.deliver(t, "m", ""))
	b.requireEffects(t)
	require.True(t, s.deliver(t, "m", ""))
	b.requireEffects(t, "m")
	b.requireCounts(t, "consumer", map[string]int64{"watermill_inbox.handled": 1})
}

func TestA9_HandlerRollsBackAndFails(t *testing.T) {
	b := newBench(t)
	handler := b.once(nothing(ends(t, (*sql.Tx).Rollback, errPlanned)))
	err := call(t, handler, "m")
	require.ErrorIs(t, err, errPlanned)
	require.ErrorIs(t, err, uow.ErrEnded)
	b.requireEffects(t)
	require.NoError(t, call(t, handler, "m"))
	b.requireEffects(t, "m")
}
