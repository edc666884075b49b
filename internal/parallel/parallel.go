// Package parallel calls a function for many things, some at a time.
package parallel

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls f for 0 … n-1 in order, by so many workers at a time (0: one for each processor), and returns the error of the lowest that
// failed, or that of ctx. After either no further call begins.
func Each(ctx context.Context, n, workers int, f func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Bool
	var wait sync.WaitGroup
	errs := make([]error, n)
	for range min(n, cmp.Or(workers, runtime.GOMAXPROCS(0))) {
		wait.Go(func() {
			for ctx.Err() == nil && !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[i] = f(i); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wait.Wait()
	return cmp.Or(append(errs, ctx.Err())...)
}
