package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"fulcrum/internal/parallel"
)

// TestEach: all are done; of two that fail the lower one's error is returned, however late, and what has not begun does not begin.
func TestEach(t *testing.T) {
	var calls atomic.Int64
	if err := parallel.Each(t.Context(), 100, 0, func(int) error { calls.Add(1); return nil }); err != nil || calls.Load() != 100 {
		t.Fatalf("%d calls, %v", calls.Load(), err)
	}
	calls.Store(0)
	err := parallel.Each(t.Context(), 1000, 4, func(i int) error {
		calls.Add(1)
		if i == 2 {
			time.Sleep(20 * time.Millisecond)
		}
		if i >= 2 {
			return fmt.Errorf("the %dth", i)
		}
		return nil
	})
	if err == nil || err.Error() != "the 2th" || calls.Load() > 10 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	err = parallel.Each(ctx, 1000, 1, func(i int) error { stop(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := parallel.Each(t.Context(), 0, 0, nil); err != nil {
		t.Error(err)
	}
}
