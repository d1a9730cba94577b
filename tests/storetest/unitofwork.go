package storetest

import (
	"context"
	"testing"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

// UnitOfWorkHarness makes the units of work that the suite tests.
type UnitOfWorkHarness struct {
	// New makes a unit of work on an empty database of its own.
	New      func(t testing.TB) *uow.UnitOfWork
	Features Features
}

// UnitOfWork tests a unit of work, and with it its Beginner: that a function's effects are
// committed exactly when they may be. The names of its sub-tests are as those of [Inbox].
func UnitOfWork(t *testing.T, h UnitOfWorkHarness) {
	tests := []struct {
		name string
		when bool
		run  func(*testing.T, *bench)
	}{
		{"A3_CommitsWhatReturnedNil", true, commits},
		{"A3_NothingIsVisibleBeforeTheCommit", !h.Features.SingleConnection && !h.Features.SingleWriter, invisible},
		{"A5_RollsBackOnError", true, rollsBackOnError},
		{"A5_RollsBackOnPanicWhichGoesOn", true, rollsBackOnPanic},
		{"A5_RollsBackOnGoexit", true, rollsBackOnGoexit},
		{"A5_RollsBackWhenTheContextEnds", true, rollsBackOnContext},
		{"A5_ContextThatEndsAtAnyMoment", true, contextAtAnyMoment},
		{"A5_ContextThatEndsDuringAStatement", h.Features.LockTimeout, contextDuringStatement},
		{"A16_NestedIsASavepoint", true, nested},
		{"A16_NestedFailureOfSQLIsUndone", h.Features.SQL, nestedStatementFails},
		{"A16_SavepointThatCannotBeRestored", h.Features.SQL, lostSavepoint},
		{"A16_JoinNeverCommits", h.Features.SQL, joinNeverCommits},
		{"A16_JoinUndoesOnlyItsOwn", h.Features.SQL, joinUndoesItsOwn},
		{"A16_JoinedTransactionThatCannotBeRestored", h.Features.SQL, lostJoin},
		{"A16_JoinRefusesForeignTypes", true, joinRefuses},
		{"A9_FunctionEndsTheTransaction", true, functionEnds},
		{"A9_OutcomeIsAskedWithoutATransaction", true, askedOutside},
		{"C9_AfterCommitRunsAfterTheCommit", true, afterCommit},
		{"C9_AfterCommitNotAfterARollback", true, afterRollback},
		{"C9_AfterCommitFollowsItsSavepoint", true, afterSavepoint},
		{"C9_AfterCommitWithoutATransactionOfOurs", true, afterNothing},
		{"D4_NothingIsOpenAfterManyAtOnce", true, manyUnits},
	}
	for _, test := range tests {
		if test.when {
			t.Run(test.name, func(t *testing.T) { test.run(t, newBench(t, h.New(t), h.Features)) })
		}
	}
	t.Run("A3_TwoDatabases", func(t *testing.T) {
		twoDatabases(t, newBench(t, h.New(t), h.Features), newBench(t, h.New(t), h.Features))
	})
}

// leave is a function that has one effect and returns err.
func (b *bench) leave(name string, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := b.effect(ctx, name); err != nil {
			return err
		}
		return err
	}
}
