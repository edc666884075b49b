package lvlm

import (
	"context"
	"errors"
	"fmt"

	"fulcrum/experiments/lvlm/store"
)

// Open returns the scorer of the options with their store before it. A server is probed first, and refused when it cannot
// score. local opens the model of this process; its Score and Answer get at most Options.Batch prompts at a time, from one
// goroutine at a time. Beside a server it opens lvlm.path, to score a few prompts at the end of the job.
func Open(ctx context.Context, opt Options, local func() (Scorer, error)) (*Stored, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	var kept *store.Store
	if opt.Store != nil {
		var err error
		if kept, err = store.Open(*opt.Store); err != nil {
			return nil, err
		}
	}
	s, err := open(ctx, opt, local, kept)
	switch {
	case kept == nil:
	case err != nil:
		err = errors.Join(err, kept.Close())
	case kept.Damaged() > 0:
		s.Notes = append(s.Notes, fmt.Sprintf("lvlm.store=%s: %d bytes are damaged and left out: what they held is asked again", *opt.Store,
			kept.Damaged()))
	}
	return s, err
}

func open(ctx context.Context, opt Options, local func() (Scorer, error), kept *store.Store) (*Stored, error) {
	if opt.Backend == "local" {
		scorer, err := local()
		if err != nil {
			return nil, err
		}
		return newStored(scorer, kept, opt, opt.Batch, 1)
	}
	server, err := dial(ctx, opt)
	if err != nil {
		return nil, err
	}
	stored, err := newStored(server, kept, opt, 1, opt.Concurrency)
	if err == nil {
		stored.Notes, stored.recheck.server = server.notes, server
		if opt.Path != nil {
			stored.recheck.local = local
		}
		err = stored.recognise(server.known)
	}
	return stored, err
}

// recognise refuses a store that was filled by another model of the same name: its probe had other numbers.
func (s *Stored) recognise(now Likelihood) error {
	if s.store == nil {
		return nil
	}
	key, err := s.key(map[bool]string{true: "probe", false: "probe of texts"}[s.images], Prompt{})
	if err != nil {
		return err
	}
	packed, ok, err := s.store.Get(key)
	if err != nil || !ok {
		return errors.Join(err, s.keep(key, now.pack()))
	}
	before, err := unpack(packed)
	if err != nil {
		return err
	}
	if !now.alike(before) {
		return fmt.Errorf("the scores in the store are those of another model named %s: a known prompt had %.4v then and has %.4v now: take "+
			"another lvlm.store", s.Identity().Model, before.LogProbs, now.LogProbs)
	}
	return nil
}
