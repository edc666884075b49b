package phases

import (
	"math"

	"fulcrum/internal/option"
)

// Keeper is a Phase whose states hold weights of frozen policies.
type Keeper interface {
	// Keeps returns of how many policies.
	Keeps() int
}

// Disk returns the most bytes that the checkpoints and states of a plan take while it trains n numbers. Weights are float32, a state holds
// two moments and the frozen policies. Metrics, plots and completions are small beside those of a model that fills a disk.
func (p Plan) Disk(n int) float64 {
	o, saved, frozen := p.Checkpoint, 0, 0
	for _, phase := range p.Phases {
		saved += (phase.Info().Epochs + o.EveryEpochs - 1) / o.EveryEpochs // a best epoch between two is not foreseen
		if k, ok := phase.(Keeper); ok {
			frozen = max(frozen, k.Keeps())
		}
	}
	const beside = 2 // the best, and the new one before an old one goes
	weights := min(saved, option.Or(o.Keep, math.MaxInt-beside)+beside)
	states := min(weights, option.Or(o.KeepStates, math.MaxInt-beside)+beside)
	if o.RestoreBest {
		weights = min(saved, weights+len(p.Phases))
	}
	if o.Format == "pt" {
		weights += saved // those are not removed
	}
	within := 1 // a state within an epoch, as a stop saves it
	if o.EverySteps != nil {
		within = beside
	}
	return 4 * float64(n) * float64(1+weights+states*(2+frozen)+within*(3+frozen)) // 1: the initial policy
}
