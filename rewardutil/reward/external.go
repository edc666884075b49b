package reward

import (
	"context"
	"errors"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/rewardutil/scorer"
)

// ExternalOptions configures a reward that a program of the user's gives: an LLM judge, a compiler, a game.
type ExternalOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	scorer.Options
}

// setDefaults sets a term that is off.
func (o *ExternalOptions) setDefaults() {
	*o = ExternalOptions{Options: scorer.DefaultOptions()}
}

// Validate reports a weight without a scorer, and the scorer's keys.
func (o ExternalOptions) Validate() error {
	if o.Weight == 0 {
		return nil
	}
	return errors.Join(
		option.Want(o.On(), "url", "want the address of a scorer, or its command"),
		o.Options.Validate(),
	)
}

// external is a Reward whose scores come from elsewhere, as they are.
type external struct{ scorer *scorer.Scorer }

func (o ExternalOptions) build() (Reward, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s, err := scorer.New(o.Options)
	if err != nil {
		return nil, err
	}
	return external{s}, nil
}

func (e external) Score(ctx context.Context, items []Item) ([]float64, error) {
	return e.scorer.Score(ctx, list.Map(items, newScorerItem))
}

func (e external) foresee() func(context.Context, Item) {
	return func(ctx context.Context, it Item) { e.scorer.Foresee(ctx, newScorerItem(it)) }
}

func (e external) Close() error { return e.scorer.Close() }
