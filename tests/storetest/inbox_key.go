package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// encode and decode make the consumer and id of a key the name of an effect and back. No valid key
// holds a NUL.
func encode(key inbox.Key) string { return key.Consumer + "\x00" + key.MessageID }

func decode(name string) inbox.Key {
	consumer, messageID, _ := strings.Cut(name, "\x00")
	return inbox.Key{Consumer: consumer, MessageID: messageID}
}

func oncePerConsumer(t *testing.T, b *inboxBench) {
	one, other := inbox.Key{Consumer: "one", MessageID: "m"}, inbox.Key{Consumer: "other", MessageID: "m"}
	b.requireOutcome(t, inbox.Fresh, one)
	b.requireOutcome(t, inbox.Fresh, other)
	b.requireOutcome(t, inbox.Duplicate, one)
	b.requireOutcome(t, inbox.Duplicate, other)
	b.requireEffects(t, encode(one), encode(other))
}

// alike are texts that some collation takes for the same.
var alike = []string{
	"aB1", "ab1", "AB1", "ab1 ", " ab1", "ab1\t", "ab1\n",
	"caf\u00e9", "cafe\u0301", "cafe", // composed, decomposed, without accent
	"stra\u00dfe", "strasse", "\u0131", "i", "I", "\u0130",
	"\u212b", "\u00c5", "A\u030a", // the angstrom sign and two ways to write the letter
	"\u200bab1", "ab1\u00ad", "\U0001f600", "\U0001f601", "1", "01", "1.0", "NULL", "null", "%", "_",
}

// C15: also for everything else that a key is made of.
func byteByByte(t *testing.T, b *inboxBench) {
	key := map[string]func(text string) inbox.Key{
		"id":       func(text string) inbox.Key { return inbox.Key{Consumer: "ids", MessageID: text} },
		"consumer": func(text string) inbox.Key { return inbox.Key{Consumer: text, MessageID: "consumers"} },
		"tenant": func(text string) inbox.Key {
			return inbox.Key{Consumer: "tenants", MessageID: "tenant " + text, Tenant: text, IdempotencyKey: "key"}
		},
		"idempotency key": func(text string) inbox.Key {
			return inbox.Key{Consumer: "keys", MessageID: "key " + text, IdempotencyKey: text}
		},
	}
	for part, of := range key {
		for _, text := range alike {
			outcome, err := b.deliver(t.Context(), of(text), nil)
			require.NoError(t, err)
			require.Equal(t, inbox.Fresh, outcome, "%s %+q was taken for another one", part, text)
		}
		for _, text := range alike {
			outcome, err := b.deliver(t.Context(), of(text), nil)
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome, "%s %+q was not recognised", part, text)
		}
	}
}

func longestIds(t *testing.T, b *inboxBench) {
	// 255 bytes that are 86 characters: a bound in characters would allow more, one in bytes must
	// not cut. The two differ in the last byte only.
	long := strings.Repeat("\u20ac", 84) + "ab"
	one, other := id(long+"1"), id(long+"2")
	require.Len(t, one.MessageID, inbox.MaxID)
	for _, key := range []*inbox.Key{&one, &other} {
		key.Consumer, key.Tenant, key.IdempotencyKey = long+"c", long+"t", key.MessageID
	}
	b.requireOutcome(t, inbox.Fresh, one)
	b.requireOutcome(t, inbox.Fresh, other)
	b.requireOutcome(t, inbox.Duplicate, one)
}

func businessKey(t *testing.T, b *inboxBench) {
	with := func(messageID, tenant, key string) inbox.Key {
		return inbox.Key{Consumer: "consumer", MessageID: messageID, Tenant: tenant, IdempotencyKey: key}
	}
	b.requireOutcome(t, inbox.Fresh, with("1", "", "k"))
	b.requireOutcome(t, inbox.Duplicate, with("2", "", "k"))
	b.requireOutcome(t, inbox.Fresh, with("3", "tenant", "k"))
	b.requireOutcome(t, inbox.Duplicate, with("4", "tenant", "k"))
	b.requireOutcome(t, inbox.Fresh, with("5", "", "other"))
	b.requireOutcome(t, inbox.Duplicate, with("1", "", "another")) // the id counts as well
	b.requireOutcome(t, inbox.Duplicate, with("1", "", ""))
	// No key is none, however many messages have none.
	b.requireOutcome(t, inbox.Fresh, with("6", "tenant", ""))
	b.requireOutcome(t, inbox.Fresh, with("7", "tenant", ""))
	another := with("8", "", "k")
	another.Consumer = "another"
	b.requireOutcome(t, inbox.Fresh, another)
}

// Two messages share a business key. The first fails and leaves nothing, so that the second is not
// taken for its duplicate: with a row for failures it would be, and the work would never be done.
func businessKeyIsFree(t *testing.T, b *inboxBench) {
	first, second := id("1"), id("2")
	first.IdempotencyKey, second.IdempotencyKey = "k", "k"
	_, err := b.deliver(t.Context(), first, func(context.Context) error { return errPlanned })
	require.ErrorIs(t, err, errPlanned)
	b.requireOutcome(t, inbox.Fresh, second)
	b.requireOutcome(t, inbox.Duplicate, first)
}

// C17. What is refused is refused before the database sees it, so the transaction goes on.
func refusedIds(t *testing.T, b *inboxBench) {
	with := func(change func(*inbox.Key)) inbox.Key {
		key := id("m")
		change(&key)
		return key
	}
	tooLong := strings.Repeat("x", inbox.MaxID+1)
	refused := map[error][]inbox.Key{
		inbox.ErrNoMessageID:      {id("")},
		inbox.ErrInvalidMessageID: {id(tooLong), id("a\x00b"), id("\x00"), id("a\xc1\xbe"), id("\xed\xa0\x80")},
		inbox.ErrInvalidKey: {
			with(func(k *inbox.Key) { k.Consumer = "" }),
			with(func(k *inbox.Key) { k.Consumer = tooLong }),
			with(func(k *inbox.Key) { k.Consumer = "a\x00" }),
			with(func(k *inbox.Key) { k.Tenant, k.IdempotencyKey = "\xff", "k" }),
			with(func(k *inbox.Key) { k.IdempotencyKey = "\x00" }),
		},
	}
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		for want, keys := range refused {
			for _, key := range keys {
				_, err := b.store.TryBegin(ctx, key)
				require.ErrorIs(t, err, want, "%+q", key)
			}
		}
		outcome, err := b.store.TryBegin(ctx, id("m"))
		require.Equal(t, inbox.Fresh, outcome)
		require.NoError(t, err)
		return b.effect(ctx, encode(id("m")))
	}))
}

func hostileText(t *testing.T, b *inboxBench) {
	texts := []string{
		`'; DROP TABLE inbox_messages; --`, `"`, `\`, `\'`, `$1`, `?1`, `:id`, `{}`, "a\nb", "\x01\x7f", "\ufeff", "\u202e",
	}
	for _, text := range texts {
		key := inbox.Key{Consumer: text, MessageID: text, Tenant: text, IdempotencyKey: text}
		b.requireOutcome(t, inbox.Fresh, key)
		b.requireOutcome(t, inbox.Duplicate, key)
	}
	burier, ok := b.store.(Burier)
	if !ok {
		return
	}
	bad := strings.Repeat("\x00\xff", 100_000)
	require.NoError(t, burier.Bury(t.Context(), inbox.Dead{
		Consumer: "consumer", MessageID: "bad", Topic: bad, Payload: []byte(bad), Error: bad,
		Metadata: map[string]string{bad: bad, "": "", "\x00": "\xff"},
	}))
	require.NoError(t, burier.Bury(t.Context(), inbox.Dead{Consumer: "consumer", MessageID: "empty"}))
	b.requireOutcome(t, inbox.Fresh, id("bad"))
	b.requireOutcome(t, inbox.Fresh, id("empty"))
	require.ErrorIs(t, burier.Bury(t.Context(), inbox.Dead{Consumer: "consumer", MessageID: bad}), inbox.ErrInvalidMessageID)
}
