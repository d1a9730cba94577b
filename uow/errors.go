package uow

import (
	"errors"
	"fmt"

	"github.com/watermill-inbox/watermill-inbox/dialect"
)

// Errors of a context that carries no fitting transaction.
var (
	// ErrNoTransaction is returned where a unit of work is required and the context carries none
	// of this database.
	ErrNoTransaction = errors.New("uow: no unit of work in the context")
	// ErrWrongType is returned by [Tx] when the transaction has another type than the one asked for.
	ErrWrongType = errors.New("uow: the unit of work carries another transaction type")
	// ErrJoined is returned by [AfterCommit] in a joined transaction: its owner commits it, and
	// nobody tells us when.
	ErrJoined = errors.New("uow: the transaction is joined, its commit is not ours to see")
)

// Errors of ending a transaction.
var (
	// ErrEnded is returned when the function, or something it called, ended the transaction itself.
	ErrEnded = errors.New("uow: the function ended the transaction itself; leave that to Do: return nil to commit, an error to roll back")
	// ErrOutcomeUnknown is returned when the connection broke during COMMIT: the work may be
	// committed or not.
	ErrOutcomeUnknown = errors.New("uow: the connection broke during commit, the outcome is unknown")
	// ErrRollbackOnly is returned when a savepoint could not be restored, so that nothing of the
	// transaction may be kept.
	ErrRollbackOnly = errors.New("uow: a savepoint could not be restored, the transaction was rolled back")
)

// OpError is a failure of the transaction itself, not of a statement in it.
type OpError struct {
	// Op is "begin", "commit" or "rollback".
	Op string
	// Err is the driver's error.
	Err error
	// Work is the unit of work that failed; a handler may use several.
	Work *UnitOfWork
}

func (e *OpError) Error() string { return fmt.Sprintf("uow: %s: %v", e.Op, e.Err) }

// Unwrap gives the driver's error, and ErrOutcomeUnknown for a connection lost during COMMIT.
func (e *OpError) Unwrap() []error {
	if e.Op == "commit" && dialect.Connection(e.Err) {
		return []error{e.Err, ErrOutcomeUnknown}
	}
	return []error{e.Err}
}

// Class says what err means for this unit of work's database. A connection that broke while a
// transaction began or ended is [dialect.Infrastructure]; a network error of the function's own,
// such as a failed call to another service, is not.
func (w *UnitOfWork) Class(err error) dialect.Class {
	if err == nil {
		return dialect.Other
	}
	if class := w.dialect.Classify(err); class != dialect.Other {
		return class
	}
	var op *OpError
	if errors.As(err, &op) && op.Work == w && dialect.Connection(op.Err) {
		return dialect.Infrastructure
	}
	return dialect.Other
}
