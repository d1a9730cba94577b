package inbox_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestA11_KeyBounds(t *testing.T) {
	longest := strings.Repeat("\u20ac", 85) // 255 bytes
	ok := func(change func(*inbox.Key)) inbox.Key {
		key := inbox.Key{Consumer: "c", MessageID: "m"}
		change(&key)
		return key
	}
	for _, test := range []struct {
		key  inbox.Key
		want error
		says string
	}{
		{ok(func(*inbox.Key) {}), nil, ""},
		{ok(func(k *inbox.Key) {
			*k = inbox.Key{Consumer: longest, MessageID: longest, Tenant: longest, IdempotencyKey: longest}
		}), nil, ""},
		{ok(func(k *inbox.Key) { k.MessageID = " " }), nil, ""},
		{ok(func(k *inbox.Key) { k.MessageID = "\ufffd" }), nil, ""}, // the replacement character itself is valid
		{ok(func(k *inbox.Key) { k.MessageID = "" }), inbox.ErrNoMessageID, "MessageID"},
		{inbox.Key{}, inbox.ErrNoMessageID, ""},
		{ok(func(k *inbox.Key) { k.MessageID = longest + "x" }), inbox.ErrInvalidMessageID, "256 bytes, at most 255"},
		{ok(func(k *inbox.Key) { k.MessageID = "a\x00" }), inbox.ErrInvalidMessageID, "NUL"},
		{ok(func(k *inbox.Key) { k.MessageID = "\xc1\xbe" }), inbox.ErrInvalidMessageID, "UTF-8"},
		{ok(func(k *inbox.Key) { k.Consumer = "" }), inbox.ErrInvalidKey, "consumer is empty"},
		{ok(func(k *inbox.Key) { k.Consumer = longest + "x" }), inbox.ErrInvalidKey, "consumer has 256"},
		{ok(func(k *inbox.Key) { k.Tenant = "\xff" }), inbox.ErrInvalidKey, "tenant is not"},
		{ok(func(k *inbox.Key) { k.IdempotencyKey = "\x00" }), inbox.ErrInvalidKey, "idempotency key holds"},
	} {
		err := test.key.Validate()
		if test.want == nil {
			require.NoError(t, err, "%+q", test.key)
			continue
		}
		require.ErrorIs(t, err, test.want, "%+q", test.key)
		require.ErrorContains(t, err, test.says)
		require.Less(t, len(err.Error()), 200, "D6: the text itself does not reach the error")
		require.False(t, inbox.Transient(err))
	}
}

func TestErrorsThatAreNotTheMessagesFault(t *testing.T) {
	for _, err := range []error{inbox.ErrInFlight, inbox.ErrInterrupted, inbox.ErrStore, inbox.ErrPhantom} {
		require.True(t, inbox.Transient(fmt.Errorf("wrapped: %w", err)))
	}
	require.False(t, inbox.Transient(nil))
}

func TestOutcomeNames(t *testing.T) {
	require.Equal(t, "fresh, duplicate, in flight, Outcome(9)",
		fmt.Sprintf("%s, %s, %s, %s", inbox.Fresh, inbox.Duplicate, inbox.InFlight, inbox.Outcome(9)))
}

func TestD6_CleanCutsAndMends(t *testing.T) {
	for _, test := range []struct {
		in    string
		bound int
		want  string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"a\x00b", 9, "a?b"},
		{"a\xffb", 9, "a?b"},
		{"\u20ac\u20ac", 4, "\u20ac?…"}, // cut within a character
		{"abc", 0, "…"},
	} {
		require.Equal(t, test.want, inbox.Clean(test.in, test.bound), "%q", test.in)
	}
}

func FuzzD6_Clean(f *testing.F) {
	f.Add("", 0)
	f.Add("plain", 3)
	f.Add("\x00\xff\u20ac", 4)
	f.Add(strings.Repeat("\u20ac", 100), 255)
	f.Add("\xed\xa0\x80\xf4\x90\x80\x80", 2)
	f.Fuzz(func(t *testing.T, text string, bound int) {
		bound = int(uint16(bound)) // a bound is a constant of ours
		got := inbox.Clean(text, bound)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\x00")
		require.LessOrEqual(t, len(got), bound+len("…"))
		require.Empty(t, inbox.TextFault(got, bound+len("…")))
		if inbox.TextFault(text, bound) == "" {
			require.Equal(t, text, got, "what is fine stays as it is")
		}
	})
}
