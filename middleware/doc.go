// Package middleware holds the Watermill middlewares that make a handler take effect once. Each
// works on a plain Watermill router; package router arranges them.
//
// From the outside in: the dead-letter path, [Interrupted], Watermill's Retry with [ShouldRetry],
// [Recover], then the application's own middlewares, [UnitOfWork], [Inbox], [Outbox] and the handler. The order
// matters: a retry inside the unit of work would run in a transaction that has failed, and an error
// swallowed inside the inbox would be recorded as success.
package middleware
