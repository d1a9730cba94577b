package storetest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
	"github.com/watermill-inbox/watermill-inbox/inboxstore"
	"github.com/watermill-inbox/watermill-inbox/middleware"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// InboxStore is a store of inbox rows. What it offers beyond is tested when it is there: [Burier],
// [Purger] and [Checker].
type InboxStore = middleware.InboxStore

// Burier keeps messages that cannot be handled.
type Burier = middleware.Burier

// Purger deletes old rows.
type Purger interface {
	Purge(ctx context.Context, keep inboxstore.Retention, limit int) (int64, error)
}

// Checker looks whether the database is ready for the store.
type Checker interface {
	Check(ctx context.Context) error
}

// ShortWait is the longest lock wait of the stores that [InboxHarness.Impatient] makes.
const ShortWait = 200 * time.Millisecond

// InboxHarness makes the stores that the suite tests.
type InboxHarness struct {
	// New makes a store on an empty database of its own. A delivery must be ready to wait several
	// seconds for another one.
	New func(t testing.TB) (*uow.UnitOfWork, InboxStore)
	// Impatient makes such a store that waits for another delivery [ShortWait] at most. Without it
	// the end of the wait is not tested.
	Impatient func(t testing.TB) (*uow.UnitOfWork, InboxStore)
	Features  Features
}

// Inbox tests an inbox store. The names of its sub-tests begin with the number of the promise that
// they show; docs/guarantees.md has the promises.
func Inbox(t *testing.T, h InboxHarness) {
	tests := []struct {
		name string
		when bool
		run  func(*testing.T, *inboxBench)
	}{
		{"A1_EveryConsumerTakesAMessageOnce", true, oncePerConsumer},
		{"A1_IdsCompareByteByByte", true, byteByByte},
		{"A1_LongestIdsAreNotCut", true, longestIds},
		{"A2_BusinessKeyIsASecondIdentity", true, businessKey},
		{"A2_BusinessKeyOfAFailedMessageIsFree", true, businessKeyIsFree},
		{"A3_RowAndEffectStandOrFallTogether", true, together},
		{"A3_SwallowedSQLErrorIsNoHalfSuccess", h.Features.SQL, swallowedError},
		{"A3_FailedCommitIsNoSuccess", h.Features.DeferredKeys, failedCommit},
		{"A3_NoTransactionIsLoud", true, noTransaction},
		{"A4_ProcessedIsSkippedHoweverOften", true, processed},
		{"A4_DeadRunsAgain", true, dead},
		{"A4_DeadRevivedKeepsItsBusinessKey", true, deadBusinessKey},
		{"A4_BuryLeavesAHandledMessageAlone", true, buryHandled},
		{"A5_HandlerThatFailsLeavesNoRow", true, abandoned},
		{"A6_SecondWaitsAndSkips", !h.Features.SingleConnection, secondSkips},
		{"A6_SecondWaitsAndRunsAfterARollback", !h.Features.SingleConnection, secondRuns},
		{"A6_TwoThatWaitWhenTheFirstFails", !h.Features.SingleConnection, twoWait},
		{"A6_BusinessKeyRaces", !h.Features.SingleConnection, businessKeyRaces},
		{"A6_ManyAtOnce", true, manyAtOnce},
		{"A6_OthersDoNotWait", !h.Features.SingleConnection && !h.Features.SingleWriter, othersDoNotWait},
		{"A6_LockTimeoutOfTheHandlerIsUntouched", h.Features.LockTimeout, lockTimeoutUntouched},
		{"A7_UniqueViolationIsTheHandlers", h.Features.SQL, uniqueViolation},
		{"A7_RowBehindTheSnapshot", h.Features.SQL && !h.Features.SingleConnection && !h.Features.SingleWriter, behindSnapshot},
		{"A9_HandlerEndsTheTransactionItself", h.Features.SQL, endsItself},
		{"A11_IdsThatNoDatabaseKeeps", true, refusedIds},
		{"A16_JoinedRowIsTheOwners", h.Features.SQL, joined},
		{"A18_PurgesByAgeInChunks", true, purge},
		{"A18_PurgeSparesWhatIsUnderWay", !h.Features.SingleConnection && !h.Features.SingleWriter, purgeUnderWay},
		{"D6_TextFromOutsideIsOnlyText", true, hostileText},
		{"A14_CheckAcceptsMigratedTables", true, check},
	}
	for _, test := range tests {
		if !test.when {
			continue // not skipped: there is nothing that could be started to make it run
		}
		t.Run(test.name, func(t *testing.T) { test.run(t, newInboxBench(t, h.New, h.Features)) })
	}
	if h.Impatient == nil {
		return
	}
	t.Run("A6_InFlightAfterTheBound", func(t *testing.T) { inFlight(t, newInboxBench(t, h.Impatient, h.Features)) })
	t.Run("A6_InFlightAfterTheBoundForADeadRow", func(t *testing.T) { inFlightDead(t, newInboxBench(t, h.Impatient, h.Features)) })
	t.Run("A6_JoinedTransactionSurvivesTheBound", func(t *testing.T) { inFlightJoined(t, newInboxBench(t, h.Impatient, h.Features)) })
}

type inboxBench struct {
	*bench
	store InboxStore
}

func newInboxBench(t *testing.T, open func(testing.TB) (*uow.UnitOfWork, InboxStore), f Features) *inboxBench {
	work, store := open(t)
	b := &inboxBench{newBench(t, work, f), store}
	t.Cleanup(func() { b.requireInvariant(t) })
	return b
}

// requireInvariant is the one promise behind all others: a message has a row if, and only if, its
// handler has had an effect, and it has had one.
func (b *inboxBench) requireInvariant(t *testing.T) {
	if t.Failed() {
		return // the first failure says more
	}
	effects := b.effects(t)
	for name, n := range effects {
		require.Equal(t, 1, n, "effects of %q", name)
		outcome, err := b.look(decode(name))
		require.NoError(t, err)
		require.Equal(t, inbox.Duplicate, outcome, "%q has an effect, but no row", name)
	}
	if b.Rows == "" {
		return
	}
	require.NoError(t, b.work.Do(context.Background(), func(ctx context.Context) error {
		rows, err := query[int](ctx, b.work, b.Rows)
		require.Equal(t, []int{len(effects)}, rows, "rows of handled messages, effects")
		return err
	}))
}

var errLook = errors.New("only looking")

// look asks the store about a message and leaves nothing behind.
func (b *inboxBench) look(key inbox.Key) (outcome inbox.Outcome, err error) {
	err = b.work.Do(context.Background(), func(ctx context.Context) error {
		var err error
		if outcome, err = b.store.TryBegin(ctx, key); err != nil {
			return err
		}
		return errLook
	}, uow.Retry(10))
	if errors.Is(err, errLook) {
		err = nil
	}
	return outcome, err
}

// requireFresh checks that a message would be handled.
func (b *inboxBench) requireFresh(t *testing.T, key inbox.Key) {
	t.Helper()
	outcome, err := b.look(key)
	require.NoError(t, err)
	require.Equal(t, inbox.Fresh, outcome, "%+q", key)
}

// deliver does what the middlewares do with one delivery: the row first, then the handler, all in
// one transaction. The handler has an effect, and does fn if there is one.
func (b *inboxBench) deliver(ctx context.Context, key inbox.Key, fn func(ctx context.Context) error) (outcome inbox.Outcome, err error) {
	err = b.work.Do(ctx, func(ctx context.Context) error {
		var err error
		if outcome, err = b.store.TryBegin(ctx, key); err != nil {
			return err
		}
		switch outcome {
		case inbox.InFlight:
			return inbox.ErrInFlight
		case inbox.Duplicate:
			return nil
		}
		if err := b.effect(ctx, encode(key)); err != nil {
			return err
		}
		if fn != nil {
			if err := fn(ctx); err != nil {
				return err
			}
		}
		return b.store.Complete(ctx, key)
	}, uow.Retry(10))
	return outcome, err
}

// requireOutcome delivers a message and checks the answer.
func (b *inboxBench) requireOutcome(t *testing.T, want inbox.Outcome, key inbox.Key) {
	t.Helper()
	outcome, err := b.deliver(t.Context(), key, nil)
	require.NoError(t, err)
	require.Equal(t, want, outcome, "%+q", key)
}

// id is the key of a message that needs no more than that.
func id(messageID string) inbox.Key { return inbox.Key{Consumer: "consumer", MessageID: messageID} }

// snapshots reports whether a transaction sees the database as it was when it began to read.
func (b *inboxBench) snapshots() bool { return b.work.Isolation() >= sql.LevelRepeatableRead }
