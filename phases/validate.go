package phases

import (
	"cmp"
	"math"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/rewardutil"
	"fulcrum/selector"
)

// evalBatch is how many queries a validation pass evaluates at once unless Data.EvalBatch says otherwise.
const evalBatch = 128

// Validation is what a policy is worth on a set of queries.
type Validation struct {
	Loss       float64   // reward-weighted cross entropy of the recorded candidates at a fixed τ
	LossKnown  bool      // there are recorded candidates; compat's loss may be NaN all the same
	KL         float64   // exact KL(policy ‖ reference) along the greedy selection, nats per sequence
	Reward     float64   // mean reward of the greedy selection; NaN where nothing can score it
	Accuracy   float64   // mean task accuracy of the greedy selection; NaN where unknown
	Advantage  float64   // mean probability-weighted advantage over recorded groups: > 0 prefers good candidates; NaN without any
	Rewards    []float64 // [Q] per query, where scored
	Accuracies []float64 // [Q] per query, where known
	Selections [][]int64 // [Q] greedy selection
}

// Metrics returns the known numbers under their names in metrics.jsonl, with the given prefix.
func (v Validation) Metrics(prefix string) Metrics {
	m := Metrics{}
	for name, x := range map[string]float64{"loss": v.Loss, "kl": v.KL, "reward": v.Reward, "accuracy": v.Accuracy, "advantage": v.Advantage} {
		if !math.IsNaN(x) || name == "loss" && v.LossKnown {
			m[prefix+name] = x
		}
	}
	return m
}

// Validate evaluates policy on every query of src, without gradient and without dropout.
func Validate(policy, reference selector.Policy, src selector.Source, data Data) (Validation, error) {
	defer torchx.NoGrad()()
	n := src.Len()
	v := Validation{Rewards: make([]float64, 0, n), Selections: make([][]int64, 0, n)}
	var losses []float64 // of the queries with recorded candidates
	var kl, advantage, advGroups float64
	scorer, canScore := src.(selector.Scorer)
	canScore = canScore && scorer.CanScore()
	for queries := range selector.Chunks(n, cmp.Or(data.EvalBatch, evalBatch)) {
		if err := torchx.Try(func() error {
			defer torchx.Scope()()
			if b := src.Recorded(queries); b.NumValid() > 0 {
				out := policy.Forward(b, selector.ForwardOptions{Dist: data.ValLoss.Smoothing > 0})
				losses = append(losses, recordedLosses(out, b, data)...)
				a, groups := recordedAdvantage(out, b, data.Advantage)
				advantage, advGroups = advantage+a, advGroups+groups
			}
			greedy, _ := policy.Decode(src, queries, data.Shots, 1)
			if policy != reference { // else the KL is 0
				ref := reference.Forward(greedy, selector.ForwardOptions{Dist: true})
				out := policy.Forward(greedy, selector.ForwardOptions{Reference: ref.Dist})
				kl += torchx.Sum(maskedSum(out.KL, greedy)).Item()
			}
			for i := range queries {
				v.Selections = append(v.Selections, slices.Clone(greedy.Chosen(i, 0)))
			}
			if canScore {
				acc, err := scorer.Accuracy(greedy)
				if err != nil {
					return err
				}
				v.Rewards = append(v.Rewards, greedy.Rewards...)
				v.Accuracies = append(v.Accuracies, acc...)
			}
			return nil
		}); err != nil {
			return v, err
		}
	}
	v.Loss, v.LossKnown = meanOfBatches(losses, data.ValLoss.Batch), len(losses) > 0
	v.KL, v.Advantage = kl/float64(n), advantage/advGroups // 0/0 = NaN: unknown
	v.Reward, v.Accuracy = mean(v.Rewards), mean(v.Accuracies)
	return v, nil
}

// recordedLosses returns the reward-weighted cross entropy of each query that has recorded candidates.
func recordedLosses(out selector.Output, b *selector.Batch, data Data) []float64 {
	opt, rewards := data.ValLoss, b.Rewards
	if data.Normalize != nil && !opt.Raw {
		rewards = normalizeGroups(b, data.Normalize)
	}
	w, _ := rewardutil.Weights(rewards, b.Valid, b.B(), b.G, opt.Temperature, opt.Relative)
	ce := crossEntropy(out, b, opt.Smoothing).Floats() // [B, G] sync
	var losses []float64
	for i := range b.B() {
		loss, any := 0.0, false
		for at := i * b.G; at < (i+1)*b.G; at++ {
			if b.Valid[at] {
				loss, any = loss+w[at]*ce[at], true
			}
		}
		if any {
			losses = append(losses, loss)
		}
	}
	return losses
}

// meanOfBatches is the mean over batches of their means, a short last batch weighing as much as a full
// one (as the reference averages, defect D16); the plain mean with batch 0. NaN when there is nothing.
func meanOfBatches(x []float64, batch int) float64 {
	if batch == 0 {
		return mean(x)
	}
	var means []float64
	for at := 0; at < len(x); at += batch {
		means = append(means, mean(x[at:min(at+batch, len(x))]))
	}
	return mean(means)
}

// recordedAdvantage is the sum over groups of Σ_i p_i A_i, with p the policy's probabilities of the
// recorded candidates renormalised within the group: the gain the policy expects among them.
func recordedAdvantage(out selector.Output, b *selector.Batch, opt rewardutil.AdvantageOptions) (sum, groups float64) {
	adv, _ := rewardutil.Advantages(b.Rewards, b.Valid, b.B(), b.G, opt)
	logp := sequence(out.LogP).Floats() // sync
	for i := range b.B() {
		top, total, gain := math.Inf(-1), 0.0, 0.0
		for g := range b.G {
			if at := i*b.G + g; b.Valid[at] {
				top = math.Max(top, logp[at])
			}
		}
		for g := range b.G {
			if at := i*b.G + g; b.Valid[at] {
				p := math.Exp(logp[at] - top)
				total += p
				gain += p * adv[at]
			}
		}
		if total > 0 {
			sum += gain / total
			groups++
		}
	}
	return sum, groups
}

// normalizeGroups applies normalize to each group's valid rewards.
func normalizeGroups(b *selector.Batch, normalize func([]float64) []float64) []float64 {
	out := make([]float64, len(b.Rewards))
	var group []float64
	for i := range b.B() {
		group = group[:0]
		for g := range b.G {
			if at := i*b.G + g; b.Valid[at] {
				group = append(group, b.Rewards[at])
			}
		}
		z := normalize(group)
		k := 0
		for g := range b.G {
			if at := i*b.G + g; b.Valid[at] {
				out[at] = z[k]
				k++
			}
		}
	}
	return out
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x)) // NaN when empty
}
