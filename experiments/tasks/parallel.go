package tasks

import (
	"cmp"
	"context"
	"runtime"
	"sync"
)

// parallel calls f for 0 … n-1, some at a time, and returns the error of the lowest that failed.
func parallel(ctx context.Context, n int, f func(i int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	workers := min(n, runtime.GOMAXPROCS(0))
	for w := range workers {
		wait.Go(func() {
			for i := w; i < n && ctx.Err() == nil; i += workers {
				errs[i] = f(i)
			}
		})
	}
	wait.Wait()
	return cmp.Or(append(errs, ctx.Err())...)
}
