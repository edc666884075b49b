package lvlm

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"fulcrum/rewardutil/lvlm/store"
)

// recheck asks a server a second time for a hundredth of what it scores: later, between other prompts and in another order. The
// probe sees a server at rest, and what is wrong under load shows here, such as numbers that depend on a cache.
type recheck struct {
	server *server // nil: the model runs here, and nothing is asked again

	mu      sync.Mutex
	open    []scored // not asked again yet
	again   atomic.Int64
	strayed atomic.Int64
}

// scored is a prompt with what the server said.
type scored struct {
	p Prompt
	l Likelihood
}

// note keeps those prompts that are to be asked again. The digest decides: a job that is started again takes the same ones.
func (s *Stored) note(batch []Prompt, scores []Likelihood) error {
	if s.recheck.server == nil {
		return nil
	}
	for i, p := range batch {
		key, err := s.key("recheck", p)
		if err != nil {
			return err
		}
		if sampled(key) {
			s.recheck.mu.Lock()
			s.recheck.open = append(s.recheck.open, scored{p, scores[i]})
			s.recheck.mu.Unlock()
		}
	}
	return nil
}

// sampled takes a hundredth of all keys.
func sampled(key store.Key) bool { return binary.BigEndian.Uint16(key[:]) < 1<<16/100 }

// Settle asks again for what has not been asked again yet: the end of a job, before its results are written.
func (s *Stored) Settle(ctx context.Context) error { return s.again(ctx, 1) }

// again asks again for all that is kept, the newest first, once there are so many.
func (s *Stored) again(ctx context.Context, enough int) error {
	r := &s.recheck
	r.mu.Lock()
	var open []scored
	if len(r.open) >= enough {
		open, r.open = r.open, nil
	}
	r.mu.Unlock()
	errs := make(chan error, len(open))
	for _, before := range slices.Backward(open) {
		go func() { errs <- s.compare(ctx, before) }()
	}
	var first error
	for range open {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// compare asks again for one score. Half precision in batches of changing sizes strays from the probe's tolerance now and then:
// that is counted. An error are three such prompts that are more than a fiftieth of those asked again, or one far beyond it.
func (s *Stored) compare(ctx context.Context, before scored) error {
	select {
	case s.workers <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.workers }()
	now, err := s.scorer.Score(ctx, []Prompt{before.p})
	if err != nil {
		return err
	}
	const far, few, share = 4, 3, 50
	apart, again := before.l.apart(now[0]), s.recheck.again.Add(1)
	if apart <= 1 {
		return nil
	}
	if n := s.recheck.strayed.Add(1); apart <= far && (n < few || n*share <= again) {
		return nil
	}
	var shots []int64
	for _, e := range before.p.Shots {
		shots = append(shots, e.ID)
	}
	return s.recheck.server.named(fmt.Errorf("%s: query %d after demonstrations %v: its answer %q had %.4v and has %.4v when asked again "+
		"later (%d of %d prompts asked again differ): %s; the scores so far are kept, take another lvlm.store for the right ones",
		s.Identity().Engine, before.p.Query.ID, shots, before.p.Query.Answer, before.l.LogProbs, now[0].LogProbs, s.recheck.strayed.Load(),
		again, cached))
}
