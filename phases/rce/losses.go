package rce

import (
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// Losses lists the losses that rce.loss may name. What may be named, its help and its check follow from the entry. The first is
// reward-weighted cross entropy, -Σ_i w_i s_i with w = softmax(r/τ), which Phase.Loss computes; the others have a file each.
func Losses() []Loss {
	return []Loss{{Name: "cross_entropy", Weighs: true}, expectedReward(), listNet(), pairwise(), dpo()}
}

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

func (l Loss) named() string { return l.Name }

func find(name string) (Loss, error) { return option.Choose("loss", name, Losses(), Loss.named) }

func (Options) Choices() map[string][]string {
	return map[string][]string{"loss": list.Map(Losses(), Loss.named)}
}

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

func (r *Phase) Keeps() int {
	if r.loss.Ends {
		return 1
	}
	return 0
}
