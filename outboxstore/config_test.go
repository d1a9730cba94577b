package outboxstore_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/outboxstore"
	"github.com/watermill-inbox/watermill-inbox/uow"
)

// What a store does is in tests/storetest; here is what needs none.

func TestC2_NewMessageSharesNothing(t *testing.T) {
	payload := []byte("abc")
	e, err := outboxstore.NewMessage(outboxstore.Envelope{Topic: "t", Message: message.NewMessage("", payload)})
	require.NoError(t, err)
	payload[0] = 'x'
	assert.Equal(t, "abc", string(e.Message.Payload))
	assert.Len(t, e.Message.UUID, 26)
	assert.WithinDuration(t, time.Now(), e.OccurredAt, time.Minute)
	_, err = outboxstore.NewMessage(outboxstore.Envelope{})
	require.ErrorContains(t, err, "Topic is empty")
	require.ErrorContains(t, err, "Message is nil")
}

func TestD4_FaultsAreReportedBeforeAnythingIsOpened(t *testing.T) {
	store := outboxstore.New(uow.NewMemory(), outboxstore.MaxPayload(0), outboxstore.LockWait(0))
	require.ErrorContains(t, store.Validate(), "outbox.sql")
	memory := outboxstore.NewMemory(uow.NewMemory(), outboxstore.MaxPayload(0), outboxstore.LockWait(0))
	require.ErrorContains(t, memory.Validate(), "MaxPayload is 0")
	require.ErrorContains(t, memory.Validate(), "LockWait is 0s")
	require.Error(t, outboxstore.New(nil).Validate())
}

func TestForwarderConfigReportsEveryFault(t *testing.T) {
	_, err := outboxstore.NewForwarder(nil, nil, outboxstore.ForwarderConfig{
		Batch: -1, Workers: -1, Poll: -1, Lease: 1, PublishTimeout: -1, DrainTimeout: -1, MaxRejections: -1, MinRetry: -1, MaxPause: -1, Owner: "\xff",
	})
	for _, part := range []string{"Batch", "Workers", "Poll", "Lease", "PublishTimeout", "DrainTimeout", "MaxRejections", "MinRetry", "MaxPause", "Owner", "source is nil", "publisher is nil"} {
		assert.ErrorContains(t, err, part)
	}
}
