package outboxstore

import (
	"context"
	"time"
)

// Source is what a [Forwarder] needs of an outbox: [Store] and [Memory] have it. The methods are
// described at [Store].
type Source interface {
	Claim(ctx context.Context, request ClaimRequest) ([]Claimed, error)
	Complete(ctx context.Context, leases []Lease, keep bool) (int, error)
	Release(ctx context.Context, releases []Release) (int, error)
	Renew(ctx context.Context, leases []Lease, lease time.Duration) (int, error)
	Reject(ctx context.Context, rejections []Rejection) (int, error)
	Wake() <-chan struct{}
}
