// Package uow carries one database transaction, a unit of work, in a context.
//
// [UnitOfWork.Do] begins the transaction, calls a function with a context that carries it, and
// commits; it rolls back when the function returns an error, panics, calls runtime.Goexit or lets
// its context end. Inside, [Tx] gives the driver's own transaction, and a nested Do or a
// [UnitOfWork.Join] of a transaction that the caller owns is a savepoint.
//
// A unit of work belongs to the goroutine that runs its function, like the transaction itself.
// A UnitOfWork value is safe for concurrent use.
package uow
