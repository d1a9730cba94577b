package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// OutboxStore is an outbox as producers, forwarders and operators use it. outboxstore.Store and
// outboxstore.Memory have these methods, and describe them.
type OutboxStore interface {
	outboxstore.Source
	Checker
	Append(ctx context.Context, envelopes ...outboxstore.Envelope) ([]outboxstore.Result, error)
	AppendOwn(ctx context.Context, envelopes ...outboxstore.Envelope) ([]outboxstore.Result, error)
	Stage(ctx context.Context, topic string, messages ...*message.Message) error
	Publisher(cfg ...outboxstore.PublisherConfig) message.Publisher
	Stats(ctx context.Context) (outboxstore.Stats, error)
	List(ctx context.Context, filter outboxstore.Filter) ([]outboxstore.Row, error)
	Read(ctx context.Context, seq int64) (outboxstore.Row, error)
	Requeue(ctx context.Context, seqs ...int64) (outboxstore.Changed, error)
	RequeueAll(ctx context.Context, filter outboxstore.Filter) (outboxstore.Changed, error)
	Discard(ctx context.Context, seqs ...int64) (outboxstore.Changed, error)
	DiscardAll(ctx context.Context, filter outboxstore.Filter) (outboxstore.Changed, error)
	Purge(ctx context.Context, policy outboxstore.PurgePolicy) (int64, error)
	UnitOfWork() *uow.UnitOfWork
}

// TxAppender appends in a transaction that the caller owns. An [OutboxStore] on a database has it.
type TxAppender interface {
	AppendTx(ctx context.Context, tx any, envelopes ...outboxstore.Envelope) ([]outboxstore.Result, error)
}

// OutboxHarness makes the stores that the suite tests.
type OutboxHarness struct {
	// New makes a store on an empty database of its own, and a second one on the same rows, as
	// another process has it. They may be one where rows do not leave the process.
	New func(t testing.TB) (store, second OutboxStore)
	// Impatient makes such stores, of which the second waits for another transaction [ShortWait] at
	// most. Without it the end of the wait is not tested.
	Impatient func(t testing.TB) (store, second OutboxStore)
	Features  Features
}

// Outbox tests an outbox store, and with it the forwarder. The names of its sub-tests are as those
// of [Inbox].
func Outbox(t *testing.T, h OutboxHarness) {
	tests := []struct {
		name string
		when bool
		run  func(*testing.T, *outboxBench)
	}{
		{"C1_AppendNeedsAUnitOfWork", true, appendNeedsAUnitOfWork},
		{"C1_RollbackLeavesNothing", true, rollbackLeavesNothing},
		{"C1_SavepointTakesItsRowsBack", true, savepointTakesItsRowsBack},
		{"C1_ResultsComeInTheOrderGiven", true, resultsComeInTheOrderGiven},
		{"C1_StoredEnvelopeIsReturned", true, storedEnvelopeIsReturned},
		{"C1_PublisherStagesIntoTheMessagesOwnUnitOfWork", true, publisherStagesIntoTheMessagesOwnUnitOfWork},
		{"C1_PublisherRefusesAnotherPayloadUnderTheSameID", true, publisherRefusesAnotherPayloadUnderTheSameID},
		{"C1_PublisherWritesNothingWhenOneMessageHasNoUnitOfWork", true, publisherWritesNothingWhenOneMessageHasNoUnitOfWork},
		{"B1_DuplicateOfAnOpenTransactionWaits", !h.Features.SingleWriter, duplicateOfAnOpenTransactionWaits},
		{"B1_LockTimeoutOfTheTransactionIsUntouched", h.Features.LockTimeout, lockTimeoutOfTheTransactionIsUntouched},
		{"B2_CallersTransactionIsJoined", h.Features.SQL, callersTransactionIsJoined},
		{"B2_OwnTransactionWhateverTheContextCarries", !h.Features.SingleWriter, ownTransactionWhateverTheContextCarries},
		{"B3_AnyNumberInOneCall", true, anyNumberInOneCall},
		{"B3_OppositeOrderCannotDeadlock", true, oppositeOrderCannotDeadlock},
		{"C2_EveryFaultIsNamedAndTheTransactionStaysUsable", true, everyFaultIsNamedAndTheTransactionStaysUsable},
		{"C2_PayloadIsAnyBytesAndIsCopied", true, payloadIsAnyBytesAndIsCopied},
		{"C3_ClaimTakesTheOldestDueFirst", true, claimTakesTheOldestDueFirst},
		{"C3_DelayedRowComesWhenItIsDue", true, delayedRowComesWhenItIsDue},
		{"C3_ExpiredLeaseIsTakenOverWithAFreshReceipt", true, expiredLeaseIsTakenOverWithAFreshReceipt},
		{"C3_ManyClaimersNeverShareARow", true, manyClaimersNeverShareARow},
		{"C3_ClaimRequestIsChecked", true, claimRequestIsChecked},
		{"C4_CompleteTakesOnlyTheCurrentReceipt", true, completeTakesOnlyTheCurrentReceipt},
		{"C4_ReleaseGivesBackAtOnceOrLater", true, releaseGivesBackAtOnceOrLater},
		{"C4_RenewKeepsOthersAway", true, renewKeepsOthersAway},
		{"C4_WriteBackOutlivesTheCallersContext", true, writeBackOutlivesTheCallersContext},
		{"C4_RunOnceRenewsBetweenMessages", true, runOnceRenewsBetweenMessages},
		{"C4_RowWhoseLeaseRanOutIsNotPublished", true, rowWhoseLeaseRanOutIsNotPublished},
		{"C4_LeaseIsRenewedWhilePublishingAndNoLonger", true, leaseIsRenewedWhilePublishingAndNoLonger},
		{"C5_RejectionsMakeARowDeadAndClaimsDoNot", true, rejectionsMakeARowDeadAndClaimsDoNot},
		{"C5_RowThatCannotBeDecodedComesWithItsFault", h.Features.SQL, rowThatCannotBeDecodedComesWithItsFault},
		{"C5_UndecodableRowDiesAlone", h.Features.SQL, undecodableRowDiesAlone},
		{"C5_RequeuedRowIsPublished", true, requeuedRowIsPublished},
		{"C5_RequeueAndDiscardTouchDeadRowsOnly", true, requeueAndDiscardTouchDeadRowsOnly},
		{"C5_ListByEveryField", true, listByEveryField},
		{"C6_OutageSpendsNothing", true, outageSpendsNothing},
		{"C6_OutageEndsByItself", true, outageEndsByItself},
		{"C6_RejectionSpendsOneAndParksItsKey", true, rejectionSpendsOneAndParksItsKey},
		{"C6_UnclassifiedFailureIsARejectionOnlyBesideASuccess", true, unclassifiedFailureIsARejectionOnlyBesideASuccess},
		{"C7_OnlyTheOldestUnfinishedRowOpensItsKey", true, onlyTheOldestUnfinishedRowOpensItsKey},
		{"C7_AGapEndsALane", true, aGapEndsALane},
		{"C7_DeadRowLetsItsKeyGoOn", true, deadRowLetsItsKeyGoOn},
		{"C7_RequeuedRowsGoLast", true, requeuedRowsGoLast},
		{"C7_BatchHoldsManyKeysInTurn", true, batchHoldsManyKeysInTurn},
		{"C7_KeysStayInOrderUnderFailures", true, keysStayInOrderUnderFailures},
		{"C9_CommitWakes", true, commitWakes},
		{"C9_CommitWakesTheForwarderAtOnce", true, commitWakesTheForwarderAtOnce},
		{"C9_OtherProcessesPoll", h.Features.SQL, otherProcessesPoll},
		{"C10_RunOncePublishesOneBatchInOrder", true, runOncePublishesOneBatchInOrder},
		{"C10_CancellationStopsBeforeTheNextMessage", true, cancellationStopsBeforeTheNextMessage},
		{"C10_PanicGoesOnAfterTheOthersAreWrittenBack", true, panicGoesOnAfterTheOthersAreWrittenBack},
		{"C10_HeldRejectionKeepsTheLease", true, heldRejectionKeepsTheLease},
		{"C10_RunPublishesUntilItsContextEnds", true, runPublishesUntilItsContextEnds},
		{"C10_StopDrainsAndGivesBack", true, stopDrainsAndGivesBack},
		{"C10_PublisherThatDoesNotReturnCannotHoldRun", true, publisherThatDoesNotReturnCannotHoldRun},
		{"C10_PublisherThatHeedsItsContextIsInterruptedWithoutBlame", true, publisherThatHeedsItsContextIsInterruptedWithoutBlame},
		{"C10_PanicGoesOnInTheCallersGoroutine", true, panicGoesOnInTheCallersGoroutine},
		{"C11_PurgeTakesOnlyFinishedRowsPastTheirRetention", true, purgeTakesOnlyFinishedRowsPastTheirRetention},
		{"C11_RetentionZeroDeletesAtCompletion", true, retentionZeroDeletesAtCompletion},
		{"A14_CheckNamesTheRemedy", h.Features.SQL, checkNamesTheRemedy},
		{"A19_DatabaseOutageIsSurvived", true, databaseOutageIsSurvived},
		{"D5_RunMayBeStoppedBeforeItStartsAndStartedAgain", true, runMayBeStoppedBeforeItStartsAndStartedAgain},
		{"D6_MessageArrivesAsItWasSent", true, messageArrivesAsItWasSent},
	}
	for _, test := range tests {
		if test.when {
			t.Run(test.name, func(t *testing.T) { test.run(t, newOutboxBench(t, h.New, h.Features)) })
		}
	}
	if h.Impatient != nil {
		t.Run("B1_WaitForAnOpenTransactionIsBounded", func(t *testing.T) {
			waitForAnOpenTransactionIsBounded(t, newOutboxBench(t, h.Impatient, h.Features))
		})
	}
}

// outboxBench is one empty outbox.
type outboxBench struct {
	*bench
	OutboxStore
	second OutboxStore
}

func newOutboxBench(t *testing.T, open func(testing.TB) (store, second OutboxStore), f Features) *outboxBench {
	store, second := open(t)
	work := store.UnitOfWork()
	require.NoError(t, work.Validate())
	return &outboxBench{&bench{Features: f, work: work}, store, second}
}

// table is the quoted name of the outbox table, for statements of the tests' own.
func (b *outboxBench) table() string { return b.work.Dialect().Names().Rewrite("outbox_messages") }

// doTable runs a statement on the outbox table, whose name stands as %s in it.
func (b *outboxBench) doTable(t *testing.T, statement string) {
	t.Helper()
	b.do(t, fmt.Sprintf(statement, b.table()))
}

// countRows counts the rows of the outbox table that a condition in SQL selects.
func (b *outboxBench) countRows(t *testing.T, where string) (n int) {
	t.Helper()
	require.NoError(t, b.work.Do(context.Background(), func(ctx context.Context) error {
		counts, err := query[int](ctx, b.work, "SELECT count(*) FROM "+b.table()+" WHERE "+where)
		for _, count := range counts {
			n += count
		}
		return err
	}))
	return n
}

// add commits envelopes.
func (b *outboxBench) add(t testing.TB, envelopes ...outboxstore.Envelope) []outboxstore.Result {
	t.Helper()
	results, err := b.AppendOwn(context.Background(), envelopes...)
	require.NoError(t, err)
	return results
}

func (b *outboxBench) claim(t testing.TB, limit int) []outboxstore.Claimed {
	t.Helper()
	claimed, err := b.Claim(context.Background(), request(limit))
	require.NoError(t, err)
	return claimed
}

// claimAsMemory claims while a transaction is open, where that waits for nothing.
func (b *outboxBench) claimAsMemory(t testing.TB) []outboxstore.Claimed {
	if b.SQL {
		return nil
	}
	return b.claim(t, 10)
}

func (b *outboxBench) stats(t testing.TB) outboxstore.Stats {
	t.Helper()
	stats, err := b.Stats(context.Background())
	require.NoError(t, err)
	stats.OldestAge = 0
	return stats
}

// kill makes a pending row dead.
func (b *outboxBench) kill(t testing.TB, ids ...string) {
	t.Helper()
	for len(ids) > 0 {
		claimed := b.claim(t, 100)
		require.NotEmpty(t, claimed)
		var rejections []outboxstore.Rejection
		var releases []outboxstore.Release
		for _, c := range claimed {
			killed := false
			for i, id := range ids {
				if id == c.Envelope.Message.UUID {
					ids, killed = append(ids[:i:i], ids[i+1:]...), true
					rejections = append(rejections, outboxstore.Rejection{Lease: c.Lease, Error: "no to " + id, Allowed: 1})
					break
				}
			}
			if !killed {
				releases = append(releases, outboxstore.Release{Lease: c.Lease})
			}
		}
		_, err := b.Reject(context.Background(), rejections)
		require.NoError(t, err)
		_, err = b.Release(context.Background(), releases)
		require.NoError(t, err)
	}
}

func request(limit int) outboxstore.ClaimRequest {
	return outboxstore.ClaimRequest{Owner: "test", Limit: limit, Lease: time.Minute}
}

func envelope(id string) outboxstore.Envelope {
	return outboxstore.Envelope{Topic: "orders", Message: message.NewMessage(id, []byte("payload of "+id))}
}

func keyed(id, key string) outboxstore.Envelope {
	e := envelope(id)
	e.OrderingKey = key
	return e
}

func ids(claimed []outboxstore.Claimed) []string {
	out := []string{}
	for _, c := range claimed {
		out = append(out, c.Envelope.Message.UUID)
	}
	return out
}

func leases(claimed []outboxstore.Claimed) []outboxstore.Lease {
	var out []outboxstore.Lease
	for _, c := range claimed {
		out = append(out, c.Lease)
	}
	return out
}

// within polls until the condition holds.
func within(t testing.TB, d time.Duration, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, d, 5*time.Millisecond, what)
}
