package lvlm

import (
	"context"
	"sync"
	"time"
)

// throttle bounds the requests that are under way. The bound is halved when the server says that it has too many, and grows by
// one with as many answers as it allows: additive increase, multiplicative decrease (Chiu and Jain 1989).
type throttle struct {
	mu      sync.Mutex
	most    float64
	bound   float64
	active  int
	halved  time.Time
	waiting []chan struct{}
}

func (t *throttle) enter(ctx context.Context) error {
	t.mu.Lock()
	if float64(t.active) < t.bound && len(t.waiting) == 0 {
		t.active++
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range t.waiting {
		if w == turn {
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			return context.Cause(ctx)
		}
	}
	t.leave() // the turn came at the same moment
	return context.Cause(ctx)
}

// exit ends a request. Refusals of one moment count once.
func (t *throttle) exit(refused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !refused:
		t.bound = min(t.most, t.bound+1/t.bound)
	case time.Since(t.halved) > time.Second:
		t.bound, t.halved = max(1, t.bound/2), time.Now()
	}
	t.leave()
}

func (t *throttle) leave() {
	t.active--
	for len(t.waiting) > 0 && float64(t.active)+1 <= t.bound {
		t.active++
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
	}
}
