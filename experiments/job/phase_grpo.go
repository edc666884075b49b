package job

import (
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/selector"
)

// GRPOOptions is a section of kind grpo.
type GRPOOptions struct{ grpo.Options }

// NewGRPO returns the defaults.
func NewGRPO() *GRPOOptions { return &GRPOOptions{grpo.DefaultOptions()} }

// Build implements Phase.
func (o *GRPOOptions) Build(name string, c *Config, d Sources) (phases.Phase, error) {
	from := d.Records
	if o.Rollout == "online" {
		from = d.Online
	}
	src, err := from(name)
	return grpo.New(name, o.Options, c.Optim, c.LRSchedule, src, c.Data.BatchSize), err
}

// Traits implements Phase.
func (o *GRPOOptions) Traits(c *Config) Traits {
	t := Traits{Epochs: o.Epochs, Learns: FromGroups, Freeze: o.Freeze, Credit: compared(o.Options)}
	if !o.Temperature.Enabled { // else the KL steers it
		t.SampleTemp = c.sampleTemp(o.SampleTemp)
	}
	if o.Rollout == "online" {
		t.Learns = FromSamples
	}
	return t
}

// Shrink implements Phase.
func (o *GRPOOptions) Shrink(groupSize int) {
	o.GroupSize = min(o.GroupSize, groupSize)
	if o.ZeroVariance == "resample" {
		o.ZeroVariance = "keep"
	}
}

// compared returns preflight.Stage.Credit of GRPO, whose ratios are 1 and whose KL has no gradient in the first step; k1's,
// which pulls at all candidates alike, is not counted, so that such phases are left out where it has a weight.
func compared(o grpo.Options) func(b *selector.Batch, tau float64) []float64 {
	if o.Hooks.Advantages != nil || o.Advantage.Anchored() || o.EntropyWeight > 0 || o.KL.Estimator == "k1" && o.KL.Beta > 0 {
		return nil
	}
	return func(b *selector.Batch, _ float64) []float64 {
		top, adv, _, _ := o.Curriculum.Apply(b.Rewards, b.Valid, b.B(), b.G, 1, o.Advantage)
		w := make([]float64, len(b.Valid))
		for i, ok := range top.Valid {
			at := i/top.K*b.G + top.Index[i]
			if !ok || o.MaskTruncated && b.Cut(at) {
				continue
			}
			w[at] = adv[i]
			if o.MeanOfSteps() {
				w[at] /= float64(max(1, len(b.Scored(at/b.G, at%b.G))))
			}
		}
		return w
	}
}
