package rce

import (
	"fulcrum/internal/option"
	"fulcrum/phases"
	"fulcrum/selector"
)

func SFTKind() phases.Kind {
	return phases.Kind{Name: "sft", Help: "supervised fine-tuning on the best recorded beam",
		New: func() phases.Options { return new(DefaultSFTOptions()) }}
}

func (o *SFTOptions) Build(name string, s phases.Setup, d phases.Sources) (phases.Phase, error) {
	src, err := d.Demos(name)
	return NewSFT(*o, s.Optim, s.LRSchedule, src, s.BatchSize, s.Smoothing).Named(name), err
}

func (o *SFTOptions) Traits(s phases.Setup) phases.Traits {
	return phases.Traits{Epochs: o.Epochs, Learns: phases.FromBest, Credit: Options{Top1Only: true}.credit(s)}
}

// Shrink implements phases.Options: the targets are recorded.
func (o *SFTOptions) Shrink(int) {}

func Kind() phases.Kind {
	return phases.Kind{Name: "rce", Help: "reward-weighted cross entropy on recorded beams",
		New: func() phases.Options { return new(DefaultOptions()) }}
}

func (o *Options) Build(name string, s phases.Setup, d phases.Sources) (phases.Phase, error) {
	from := d.Beams
	if o.Rollout != "offline" {
		from = d.Online
	}
	src, err := from(name)
	return New(*o, s.Optim, s.LRSchedule, src, s.BatchSize, s.Smoothing).Named(name), err
}

func (o *Options) Traits(s phases.Setup) phases.Traits {
	t := phases.Traits{Epochs: o.Epochs, Learns: phases.FromRewards, Credit: o.credit(s), SampleTemp: o.SampleTemp}
	if o.Rollout != "offline" {
		t.Learns = phases.FromSamples
	}
	if o.Rollout == "enumerated" {
		t.SampleTemp = 0 // nothing is drawn
	}
	return t
}

func (o *Options) Shrink(groupSize int) { o.GroupSize = min(o.GroupSize, groupSize) }

// ValidateControl wants groups in which a selection may agree with others.
func (o *Options) ValidateControl(control string) error {
	return option.Want(control != "majority" || o.Rollout != "enumerated", "rollout", "want online with control=%s: each selection is "+
		"enumerated once", control)
}

// credit returns phases.Traits.Credit: nil where label smoothing makes other gradients, and for losses whose weights depend on the policy.
func (o Options) credit(s phases.Setup) func(b *selector.Batch, tau float64) []float64 {
	if s.Smoothing > 0 || o.Loss != "" && o.Loss != "cross_entropy" {
		return nil
	}
	o.Weights = nil
	r := Phase{opt: o, env: &phases.Env{Data: phases.Data{Normalize: s.Normalize}}}
	return func(b *selector.Batch, tau float64) []float64 {
		w, _ := r.weights(b, tau)
		return w
	}
}
