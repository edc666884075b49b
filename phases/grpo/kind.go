package grpo

import (
	"fulcrum/internal/option"
	"fulcrum/phases"
	"fulcrum/selector"
)

func Kind() phases.Kind {
	return phases.Kind{Name: "grpo", Help: "group-relative policy optimisation",
		New: func() phases.Options { return new(DefaultOptions()) }}
}

func (o *Options) Build(name string, s phases.Setup, d phases.Sources) (phases.Phase, error) {
	from := d.Records
	if o.Rollout == "online" {
		from = d.Online
	}
	src, err := from(name)
	return New(name, *o, s.Optim, s.LRSchedule, src, s.BatchSize), err
}

func (o *Options) Traits(phases.Setup) phases.Traits {
	t := phases.Traits{Epochs: o.Epochs, Learns: phases.FromGroups, Freeze: o.Freeze, Credit: o.credit()}
	if !o.Temperature.Enabled { // else the KL steers it
		t.SampleTemp = o.SampleTemp
	}
	if o.Rollout == "online" {
		t.Learns = phases.FromSamples
	}
	return t
}

func (o *Options) Shrink(groupSize int) {
	o.GroupSize = min(o.GroupSize, groupSize)
	if o.ZeroVariance == "resample" {
		o.ZeroVariance = "keep"
	}
}

// ValidateControl wants rewards that are those of a group, not gains over a reference.
func (o *Options) ValidateControl(control string) error {
	return option.Want(!o.Advantage.Anchored(), "advantage.method", "want another than %s with control=%s, whose rewards are those of a group",
		o.Advantage.Method, control)
}

// Reference implements phases.Referrer. The name of a reference that follows the policy is synced. There is none where the KL is never
// measured.
func (g *Phase) Reference() (selector.Policy, string) {
	if g.opt.KL.MeasureEvery == 0 {
		return nil, ""
	}
	if g.opt.KL.SyncSteps != nil {
		return g.reference.Policy, "synced"
	}
	return g.reference.Policy, g.opt.KL.Reference
}

// ValidateBest refuses a bound on a KL that is never measured, and a choice by it.
func (o *Options) ValidateBest(best phases.BestOptions) error {
	byKL := best.KLMax != nil || best.Metric != nil && *best.Metric == "val_kl"
	return option.Want(o.KL.MeasureEvery > 0 || !byKL, "kl.measure_every", "0 measures no KL, and checkpoint.best goes by it (kl_max, or "+
		"metric=val_kl): want 1, or checkpoint.best.kl_max=null")
}

// credit returns phases.Traits.Credit of GRPO, whose ratios are 1 and whose KL has no gradient in the first step; k1's,
// which pulls at all candidates alike, is not counted, so that such phases are left out where it has a weight.
func (o Options) credit() func(b *selector.Batch, tau float64) []float64 {
	if o.Hooks.Advantages != nil || o.Advantage.Anchored() || o.EntropyWeight > 0 || o.KL.Estimator == "k1" && o.KL.Beta > 0 {
		return nil
	}
	c, err := o.choose()
	// A candidate's tokens share a weight of 1, or one ratio stands for all of them.
	meanOfSteps := err == nil && (c.loss.MeanRatio || o.Ratio == "token" && !c.loss.EveryToken)
	return func(b *selector.Batch, _ float64) []float64 {
		top, adv, _, _ := o.Curriculum.Apply(b.Rewards, b.Valid, b.B(), b.G, 1, o.Advantage)
		w := make([]float64, len(b.Valid))
		for i, ok := range top.Valid {
			at := i/top.K*b.G + top.Index[i]
			if !ok || o.MaskTruncated && b.Cut(at) {
				continue
			}
			w[at] = adv[i]
			if meanOfSteps {
				w[at] /= float64(max(1, len(b.Scored(at/b.G, at%b.G))))
			}
		}
		return w
	}
}
