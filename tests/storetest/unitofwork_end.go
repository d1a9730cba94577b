package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/uow"
)

func commits(t *testing.T, b *bench) {
	require.NoError(t, b.work.Do(t.Context(), b.leave("one", nil)))
	require.NoError(t, b.work.Do(t.Context(), b.leave("two", nil)))
	b.requireEffects(t, "one", "two")
	_, err := b.work.Conn(t.Context())
	require.ErrorIs(t, err, uow.ErrNoTransaction)
}

func invisible(t *testing.T, b *bench) {
	require.NoError(t, b.work.Do(t.Context(), func(ctx context.Context) error {
		require.NoError(t, b.effect(ctx, "m"))
		b.requireEffects(t)
		return nil
	}))
	b.requireEffects(t, "m")
}

func rollsBackOnError(t *testing.T, b *bench) {
	require.Equal(t, errPlanned, b.work.Do(t.Context(), b.leave("m", errPlanned)), "the error is the function's own")
	b.requireEffects(t)
}

func rollsBackOnPanic(t *testing.T, b *bench) {
	for _, value := range []any{"text", errPlanned, 42} {
		require.PanicsWithValue(t, value, func() {
			_ = b.work.Do(t.Context(), func(ctx context.Context) error {
				_ = b.effect(ctx, "m")
				panic(value)
			})
		})
	}
	b.requireEffects(t)
}

func rollsBackOnGoexit(t *testing.T, b *bench) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.work.Do(t.Context(), func(ctx context.Context) error {
			_ = b.effect(ctx, "m")
			runtime.Goexit()
			return nil
		})
		t.Error("Do returned")
	}()
	receive(t, done)
	b.requireEffects(t)
}

// C30: the error is the context's, not that of a transaction that somebody rolled back.
func rollsBackOnContext(t *testing.T, b *bench) {
	for _, result := range []error{nil, errPlanned} {
		ctx, cancel := context.WithCancel(t.Context())
		err := b.work.Do(ctx, func(ctx context.Context) error {
			require.NoError(t, b.effect(ctx, "m"))
			cancel()
			<-time.After(moment) // in which a transaction bound to ctx would be rolled back behind our back
			require.NoError(t, b.effect(context.WithoutCancel(ctx), "m"))
			return result
		})
		require.ErrorIs(t, err, context.Canceled)
		if result != nil {
			require.ErrorIs(t, err, result)
		}
		require.NotErrorIs(t, err, uow.ErrEnded)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := b.work.Do(ctx, func(context.Context) error {
		t.Error("the context had ended before")
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)

	ctx, cancel = context.WithTimeout(t.Context(), moment)
	defer cancel()
	err = b.work.Do(ctx, func(ctx context.Context) error {
		require.NoError(t, b.effect(ctx, "m"))
		<-ctx.Done()
		return nil
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	b.requireEffects(t)
}

// An ended context is the whole story: either the work stands and there was no error, or it does
// not and the error says why.
func contextAtAnyMoment(t *testing.T, b *bench) {
	const runs = 100
	var all sync.WaitGroup
	committed := make([]bool, runs)
	slots := make(chan struct{}, 4)
	for i := range runs {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*time.Millisecond))
			defer cancel()
			err := b.work.Do(ctx, func(ctx context.Context) error {
				for range 3 {
					if err := b.work.Do(ctx, func(context.Context) error { return nil }); err != nil {
						return err
					}
				}
				return b.effect(ctx, string(rune('0'+i)))
			})
			committed[i] = err == nil
			if err != nil {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	}
	all.Wait()
	var want []string
	for i, yes := range committed {
		if yes {
			want = append(want, string(rune('0'+i)))
		}
	}
	b.requireEffects(t, want...)
}

// A statement under way is ended with its context; the roll-back does not hang on it.
func contextDuringStatement(t *testing.T, b *bench) {
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	start := time.Now()
	err := b.work.Do(ctx, func(ctx context.Context) error {
		require.NoError(t, b.effect(ctx, "m"))
		_, err := query[string](ctx, b.work, `SELECT pg_sleep(60)::text`)
		return err
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), patience)
	b.requireEffects(t)
}

func functionEnds(t *testing.T, b *bench) {
	unsure := errors.New("unsure")
	for _, test := range []struct {
		name      string
		commit    bool
		confirm   func(context.Context) (bool, error)
		result    error
		want      []error // nil: no error at all
		committed bool
	}{
		{"committed, nobody knows", true, nil, nil, []error{uow.ErrEnded}, false},
		{"committed", true, answers(true, nil), nil, nil, true},
		{"committed and failed", true, answers(true, nil), errPlanned, []error{errPlanned}, true},
		{"rolled back", false, answers(false, nil), nil, []error{uow.ErrEnded}, false},
		{"rolled back and failed", false, answers(false, nil), errPlanned, []error{errPlanned, uow.ErrEnded}, false},
		{"no answer", true, answers(true, unsure), nil, []error{unsure, uow.ErrEnded}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var ended []bool
			err := b.work.Do(t.Context(), func(ctx context.Context) error {
				if test.confirm != nil {
					require.NoError(t, uow.Confirm(ctx, test.confirm))
				}
				require.NoError(t, b.work.AfterEnd(ctx, func(committed bool) { ended = append(ended, committed) }))
				conn, err := b.work.Conn(ctx)
				require.NoError(t, err)
				if test.commit {
					require.NoError(t, conn.Commit(ctx))
				} else {
					require.NoError(t, conn.Rollback(ctx))
				}
				return test.result
			})
			for _, want := range test.want {
				require.ErrorIs(t, err, want)
			}
			if test.want == nil {
				require.NoError(t, err)
			}
			require.Equal(t, []bool{test.committed}, ended)
		})
	}
}

func answers(committed bool, err error) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { return committed, err }
}

// The question runs in a fresh transaction, with a context that has not ended.
func askedOutside(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := false
	err := b.work.Do(ctx, func(ctx context.Context) error {
		conn, err := b.work.Conn(ctx)
		require.NoError(t, err)
		require.NoError(t, conn.Rollback(ctx))
		cancel()
		return uow.Confirm(ctx, func(ctx context.Context) (bool, error) {
			asked = true
			require.NoError(t, ctx.Err())
			_, err := b.work.Conn(ctx)
			require.ErrorIs(t, err, uow.ErrNoTransaction)
			return false, b.work.Do(ctx, b.leave("asked", nil))
		})
	})
	require.True(t, asked)
	require.ErrorIs(t, err, uow.ErrEnded)
	b.requireEffects(t, "asked")
	require.ErrorIs(t, uow.Confirm(t.Context(), answers(true, nil)), uow.ErrNoTransaction)
}

func manyUnits(t *testing.T, b *bench) {
	const units = 40
	var all sync.WaitGroup
	for i := range units {
		all.Go(func() {
			defer func() { _ = recover() }()
			err := b.work.Do(t.Context(), func(ctx context.Context) error {
				require.NoError(t, b.effect(ctx, string(rune('A'+i))))
				switch i % 4 {
				case 1:
					return errPlanned
				case 2:
					panic("planned")
				case 3:
					runtime.Goexit()
				}
				return nil
			})
			assert.Equal(t, i%4 != 0, err != nil)
		})
	}
	all.Wait()
	require.Len(t, b.effects(t), units/4)
}
