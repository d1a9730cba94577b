// Package storetest holds the promises of stores and units of work as test suites. Every store of
// this module runs them, and a store of your own can do the same in a few lines:
//
//	func TestInbox(t *testing.T) {
//		storetest.Inbox(t, storetest.InboxHarness{New: newStore, Features: storetest.Features{SQL: true}})
//	}
//
// New is called for every sub-test and must give an empty database of its own each time. It should
// register a clean-up that checks that no connection is in use any more.
package storetest
