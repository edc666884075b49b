package lvlm

import (
	"context"
	"errors"

	"fulcrum/rewardutil/lvlm/store"
)

// Open returns the scorer of the options with their store before it. local opens the model of this process; its Score and
// Answer get at most Options.Batch prompts at a time, from one goroutine at a time.
func Open(_ context.Context, opt Options, local func() (Scorer, error)) (*Stored, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	kept, err := openStore(opt)
	if err != nil {
		return nil, err
	}
	scorer, err := local()
	if err != nil {
		if kept != nil {
			err = errors.Join(err, kept.Close())
		}
		return nil, err
	}
	return newStored(scorer, kept, opt, opt.Batch, 1)
}

func openStore(opt Options) (*store.Store, error) {
	if opt.Store == nil {
		return nil, nil
	}
	kept, err := store.Open(*opt.Store)
	if err == nil && opt.Compact {
		if err = kept.Compact(); err != nil {
			err = errors.Join(err, kept.Close())
		}
	}
	return kept, err
}
