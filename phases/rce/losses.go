package rce

import (
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// Losses lists the losses that rce.loss may name. Each has a file; what may be named, its help and its check follow from the entry.
func Losses() []Loss { return []Loss{crossEntropy(), expectedReward(), listNet(), pairwise(), dpo()} }

// Loss is one way to learn from groups of candidates i with rewards r_i and log-probabilities s_i = log π(a_i). The loss of a step is the
// mean over its groups that teach something.
type Loss struct {
	Name string
	// Weighs: its targets are the weights of rce.temperature.
	Weighs bool
	// Targets returns what Of reads of each group [B*G], or [B*G*G] of pairs, and the number of groups that teach. nil: the weights.
	Targets func(rewards []float64, valid []bool, G int) (targets []float64, groups int)
	// Of returns a part's sum over groups, a scalar with gradient. s [B, G] is −1e9 where there is no candidate, targets are like those
	// of Targets. nil: the weighted cross entropy of Phase.Loss.
	Of func(s, targets torchx.Tensor) torchx.Tensor
	// Signed: it may be below 0.
	Signed bool
	// Pairs compares each candidate with each other of its group: of few, then.
	Pairs bool
	// Ends takes the best and the worst of each group alone, as β·(s - that of the policy at the start of the phase).
	Ends bool
}

// find returns the entry that an option names.
func find(name string) (Loss, error) {
	for _, l := range Losses() {
		if l.Name == name {
			return l, nil
		}
	}
	return Loss{}, option.OneOf("loss", name, lossNames()...)
}

func lossNames() []string { return list.Map(Losses(), func(l Loss) string { return l.Name }) }

// Choices returns the names that loss takes.
func (Options) Choices() map[string][]string { return map[string][]string{"loss": lossNames()} }

// Validate checks the keys that depend on each other.
func (o Options) Validate() error {
	loss, err := find(o.Loss)
	switch {
	case err != nil:
		return err
	case loss.Of != nil && o.Average == "token":
		return option.Errorf("average", "want sequence with loss=%s, which compares whole candidates", o.Loss)
	case loss.Of != nil && o.Top1Only:
		return option.Errorf("top1_only", "want false with loss=%s: only cross_entropy imitates one candidate", o.Loss)
	case o.Rollout == "online" && o.Loss == "expected_reward":
		return option.Errorf("loss", "want another with rollout=online: samples are no enumeration, and the expected reward of samples is what "+
			"grpo climbs")
	case o.Rollout == "enumerated" && (loss.Pairs || loss.Ends):
		return option.Errorf("loss", "want expected_reward, list_net or cross_entropy with rollout=enumerated, whose groups hold thousands")
	}
	return nil
}

// compared is a loss of Losses on the device, a part's share with gradient.
func (r *Phase) compared(out selector.Output, in *inputs) torchx.Tensor {
	s := objective.Sequence(out.LogP) // [B, G]
	if in.reference != nil {
		s = torchx.Scale(torchx.Sub(s, in.referenceOf()), r.opt.Beta)
	}
	return in.share.Times(r.loss.Of(torchx.Add(s, in.outside), in.weight))
}

// referenceOf returns the log-probabilities of candidates under the reference, [B, G] without gradient.
func (in *inputs) referenceOf() torchx.Tensor {
	defer torchx.NoGrad()()
	return objective.Sequence(in.reference(selector.ForwardOptions{}).LogP)
}

// target puts what a loss of Losses reads of a part on its way to the device.
func (r *Phase) target(of *weighted, b *selector.Batch, from, to int, in *inputs, up *phases.Inputs) {
	each := len(of.weights) / len(of.batch.Queries)
	shape := []int{b.B(), b.G}
	if r.loss.Pairs {
		shape = append(shape, b.G)
	}
	torchx.Put(&up.Upload, &in.weight, objective.Rounded(of.weights[from*each:to*each]), shape...)
	if r.loss.Of == nil {
		return
	}
	outside := make([]float32, len(b.Valid))
	for at, ok := range b.Valid {
		if !ok {
			outside[at] = -1e9
		}
	}
	torchx.Put(&up.Upload, &in.outside, outside, b.B(), b.G)
	if r.reference != nil {
		in.reference = up.Forward(r.reference, b, selector.ForwardOptions{})
	}
}

// Keeps implements phases.Keeper.
func (r *Phase) Keeps() int {
	if r.loss.Ends {
		return 1
	}
	return 0
}

// restoreReference sets the reference of loss=dpo to that of a state.
func (r *Phase) restoreReference(s phases.PhaseState) error {
	if r.reference == nil {
		return nil
	}
	w := s.Frozen["reference"]
	if want := r.reference.Params().Numel(); len(w) != want {
		return fmt.Errorf("the saved reference policy has %d weights, want %d", len(w), want)
	}
	r.reference.Params().SetValues(w)
	return nil
}
