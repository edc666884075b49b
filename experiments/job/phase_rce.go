package job

import (
	"slices"

	"fulcrum/phases"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
)

// SFTOptions is a section of kind sft.
type SFTOptions struct{ rce.SFTOptions }

// NewSFT returns the defaults.
func NewSFT() *SFTOptions { return &SFTOptions{rce.DefaultSFTOptions()} }

// Build implements Phase.
func (o *SFTOptions) Build(name string, c *Config, d Sources) (phases.Phase, error) {
	src, err := d.Demos(name)
	return rce.NewSFT(o.SFTOptions, c.Optim, c.LRSchedule, src, c.Data.BatchSize, c.Smoothing()).Named(name), err
}

// Traits implements Phase.
func (o *SFTOptions) Traits(c *Config) Traits {
	return Traits{Epochs: o.Epochs, Learns: FromBest, Credit: imitated(c, rce.Options{Top1Only: true})}
}

// Shrink implements Phase: the targets are recorded.
func (o *SFTOptions) Shrink(int) {}

// RCEOptions is a section of kind rce.
type RCEOptions struct{ rce.Options }

// NewRCE returns the defaults.
func NewRCE() *RCEOptions { return &RCEOptions{rce.DefaultOptions()} }

// Build implements Phase.
func (o *RCEOptions) Build(name string, c *Config, d Sources) (phases.Phase, error) {
	from := d.Beams
	if o.Rollout != "offline" {
		from = d.Online
	}
	src, err := from(name)
	return rce.New(o.Options, c.Optim, c.LRSchedule, src, c.Data.BatchSize, c.Smoothing()).Named(name), err
}

// Traits implements Phase.
func (o *RCEOptions) Traits(c *Config) Traits {
	t := Traits{Epochs: o.Epochs, Learns: FromRewards, Credit: imitated(c, o.Options), SampleTemp: c.sampleTemp(o.SampleTemp)}
	if o.Rollout != "offline" {
		t.Learns = FromSamples
	}
	if o.Rollout == "enumerated" {
		t.SampleTemp = 0 // nothing is drawn
	}
	return t
}

// Shrink implements Phase.
func (o *RCEOptions) Shrink(groupSize int) { o.GroupSize = min(o.GroupSize, groupSize) }

// imitated returns preflight.Stage.Credit of phases that imitate: nil where label smoothing makes other gradients.
func imitated(c *Config, o rce.Options) func(b *selector.Batch, tau float64) []float64 {
	if c.Smoothing() > 0 || o.Loss != "" && o.Loss != "cross_entropy" {
		return nil // it depends on the policy
	}
	return func(b *selector.Batch, tau float64) []float64 {
		if o.Top1Only {
			w, best := make([]float64, len(b.Valid)), advantage.TopK(b.Rewards, b.Valid, b.B(), b.G, 1)
			for i, ok := range best.Valid {
				if ok {
					w[i/best.K*b.G+best.Index[i]] = 1 // groups of one are all kept, in their places
				}
			}
			return w
		}
		rewards := slices.Clone(b.Rewards)
		if o.Rewards == "normalized" {
			for i := range b.B() {
				var r []float64
				for g := range b.G {
					if b.Valid[i*b.G+g] {
						r = append(r, rewards[i*b.G+g])
					}
				}
				for k, x := range group.Normalize(r, c.Data.Normalize) {
					rewards[i*b.G+nth(b.Valid[i*b.G:(i+1)*b.G], k)] = x
				}
			}
		}
		w, _ := group.Weights(rewards, b.Valid, b.B(), b.G, tau, o.Temperature.Relative)
		return w
	}
}

// nth returns the place of the k-th entry that is true.
func nth(of []bool, k int) int {
	for i, ok := range of {
		if ok {
			if k == 0 {
				return i
			}
			k--
		}
	}
	return -1
}
