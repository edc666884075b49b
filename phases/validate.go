package phases

import (
	"cmp"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/ranks"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/recorded"
	"fulcrum/selector"
)

// EvalBatch is the number of queries in a validation pass without Data.EvalBatch.
const EvalBatch = 128

// Validation holds a policy's numbers on a set of queries.
type Validation struct {
	Loss       float64   // reward-weighted cross entropy of the recorded candidates at a fixed τ
	LossKnown  bool      // there are recorded candidates; it may be NaN all the same where the run allows that
	KL         float64   // exact KL(policy ‖ reference) along the greedy selection, nats per sequence
	NoKL       bool      // there was no reference: KL is NaN
	Reward     float64   // mean reward of the greedy selection; NaN where nothing can score it
	Accuracy   float64   // mean task accuracy of the greedy selection; NaN where unknown
	Advantage  float64   // mean probability-weighted advantage over recorded groups: > 0 prefers good candidates; NaN without any
	Rewards    []float64 // [Q] per query, where scored
	Accuracies []float64 // [Q] per query, where known
	Selections [][]int64 // [Q] greedy selection
	Losses     []float64 // of the queries with recorded candidates, so that their mean is Loss
	Advantages []float64 // of the same, so that their mean is Advantage

	// Recorded is how the policy orders the recorded candidates, where nothing can score its selections.
	Recorded recorded.Scores

	// Of token policies.
	Texts  []string           // [Q] greedy completions, where the scorer decodes them
	Terms  map[string]float64 // mean of each term of the reward over the greedy completions
	Length float64            // mean tokens of a greedy completion; NaN elsewhere
	Cut    float64            // share of greedy completions cut at the length limit; NaN elsewhere

	greedy  []*selector.Batch // the selections that this process has made, a batch after the other
	against reference         // of KL, where the scheduler keeps the validation
}

// setKL sets the KL to a sum over the queries.
func (v *Validation) setKL(sum float64, reference selector.Policy) {
	if v.KL, v.NoKL = sum/float64(len(v.Selections)), reference == nil; v.NoKL {
		v.KL = math.NaN()
	}
}

// scores are the rewards of the queries one by one or, without a scorer, the expected rewards among the recorded candidates.
func (v Validation) scores() []float64 {
	if len(v.Rewards) > 0 {
		return v.Rewards
	}
	return v.Recorded.Reward
}

// perQuery returns the numbers whose mean is a deciding metric, query by query, for paired comparisons; nil where there are none.
func (v Validation) perQuery(metric string) []float64 {
	return map[string][]float64{"val_reward": v.Rewards, "val_accuracy": v.Accuracies, "val_recorded_reward": v.Recorded.Reward,
		"val_loss": v.Losses, "val_advantage": v.Advantages}[metric]
}

// Metrics returns the known numbers under their names in metrics.jsonl, with the given prefix.
func (v Validation) Metrics(prefix string) Metrics {
	m := Metrics{}
	for name, x := range map[string]float64{"loss": v.Loss, "kl": v.KL, "reward": v.Reward, "accuracy": v.Accuracy, "advantage": v.Advantage,
		"completion_length": v.Length, "truncated_share": v.Cut} {
		if !math.IsNaN(x) || name == "loss" && v.LossKnown {
			m[prefix+name] = x
		}
	}
	for name, x := range v.Terms {
		m[prefix+"reward_"+name] = x
	}
	for name, x := range v.Recorded.Means() {
		m[prefix+name] = x
	}
	return m
}

// evaluated are the numbers of a validation pass over some queries.
type evaluated struct {
	Losses, Steps       []float64 // of the queries with recorded candidates: the cross entropy, the steps it is a sum over
	Advantages          []float64
	Advantage, KL       float64
	Length, Cut         int
	Selections          [][]int64
	Rewards, Accuracies []float64
	Texts               []string
	Terms               map[string]float64 // sums
	Recorded            recorded.Scores
}

// Validate evaluates policy on every query of src, without gradient and without dropout. reference nil: without the KL. The processes of a
// run share the passes; all of them get the numbers of all queries.
func Validate(by *ranks.Group, policy, reference selector.Policy, src selector.Source, data Data) (Validation, error) {
	defer torchx.NoGrad()()
	n := src.Len()
	v := Validation{Rewards: make([]float64, 0, n), Selections: make([][]int64, 0, n)}
	chunks := slices.Collect(selector.Chunks(n, cmp.Or(data.EvalBatch, EvalBatch)))
	from, to := ranks.Part(len(chunks), by.Rank(), by.Size())
	var own []evaluated
	var failed error
	for _, queries := range chunks[from:to] {
		if failed = torchx.Try(func() error {
			defer torchx.Scope()()
			e, greedy, err := evaluate(policy, reference, src, queries, data)
			own, v.greedy = append(own, e), append(v.greedy, greedy)
			return err
		}); failed != nil {
			break
		}
	}
	all, err := gathered(by, "a validation", own, failed)
	if err != nil {
		return v, err
	}
	_, text := policy.(selector.TokenPolicy)
	v.join(all, data, text, reference)
	return v, nil
}

// evaluate evaluates policy on some queries of src.
func evaluate(policy, reference selector.Policy, src selector.Source, queries []int, data Data) (e evaluated, greedy *selector.Batch,
	err error) {
	scorer, canScore := src.(selector.Scorer)
	canScore = canScore && scorer.CanScore()
	if b := src.Recorded(queries); b.NumValid() > 0 {
		out := policy.Forward(b, selector.ForwardOptions{Dist: data.ValLoss.Smoothing > 0})
		e.Losses, e.Steps = recordedLosses(out, b, data)
		e.Advantages, e.Advantage = recordedAdvantage(out, b, data.Advantage)
		if !canScore {
			addRecorded(&e.Recorded, src, out, b)
		}
	}
	greedy, _ = policy.Decode(src, queries, data.Shots, 1)
	e.KL = klOf(policy, reference, greedy)
	for i := range queries {
		e.Selections = append(e.Selections, slices.Clone(greedy.Chosen(i, 0)))
		e.Cut += int(objective.OneIf(greedy.Cut(i)))
	}
	e.Length = objective.CountSteps(greedy)
	if !canScore {
		return e, greedy, nil
	}
	if e.Accuracies, err = scorer.Accuracy(greedy); err != nil {
		return e, greedy, err
	}
	e.Rewards, e.Texts, e.Terms = greedy.Rewards, greedy.Texts, map[string]float64{}
	for name, term := range greedy.Terms {
		e.Terms[name] = stat.Sum(term)
	}
	return e, greedy, nil
}

// join sets the numbers to those of passes over all queries, in order.
func (v *Validation) join(passes []evaluated, data Data, text bool, reference selector.Policy) {
	var steps []float64
	var kl, advantage float64
	n, length, cut := list.Sum(passes, func(e evaluated) int { return len(e.Selections) }), 0, 0
	for _, e := range passes {
		v.Losses, steps, v.Advantages = append(v.Losses, e.Losses...), append(steps, e.Steps...), append(v.Advantages, e.Advantages...)
		kl, advantage, length, cut = kl+e.KL, advantage+e.Advantage, length+e.Length, cut+e.Cut
		v.Selections, v.Rewards = append(v.Selections, e.Selections...), append(v.Rewards, e.Rewards...)
		v.Accuracies, v.Texts = append(v.Accuracies, e.Accuracies...), append(v.Texts, e.Texts...)
		for name, sum := range e.Terms {
			if v.Terms == nil {
				v.Terms = map[string]float64{}
			}
			v.Terms[name] += sum / float64(n)
		}
		v.Recorded.Join(e.Recorded)
	}
	v.Loss, v.LossKnown = stat.Mean(v.Losses), len(v.Losses) > 0
	switch mean := data.ValLoss.Mean; {
	case data.ValLoss.PerToken:
		v.Loss = stat.Sum(v.Losses) / stat.Sum(steps)
		perToken := float64(len(v.Losses)) / stat.Sum(steps)
		v.Losses = list.Map(v.Losses, func(l float64) float64 { return l * perToken })
	case mean != nil:
		v.Loss = mean(v.Losses)
	}
	v.Length, v.Cut = math.NaN(), math.NaN()
	if text && n > 0 {
		v.Length, v.Cut = objective.Share(length, n), objective.Share(cut, n)
	}
	v.setKL(kl, reference)
	v.Advantage = advantage / float64(len(v.Advantages)) // 0/0 = NaN: unknown
	v.Reward, v.Accuracy = stat.Mean(v.Rewards), stat.Mean(v.Accuracies)
}

// exactKL is KL(policy ‖ reference) of every step of b, [B, G, T] nats, without gradient: summed over the
// policy's distributions, or as a token policy gives it.
func exactKL(policy, reference selector.Policy, b *selector.Batch) torchx.Tensor {
	if p, ok := policy.(selector.TokenPolicy); ok {
		return p.KL(b, reference)
	}
	ref := reference.Forward(b, selector.ForwardOptions{Dist: true})
	return policy.Forward(b, selector.ForwardOptions{Reference: ref.Dist}).KL
}

// recordedLosses returns the reward-weighted cross entropy of each query that has recorded candidates, and
// the number of its scored steps, each weighted as its candidate.
func recordedLosses(out selector.Output, b *selector.Batch, data Data) (losses, steps []float64) {
	opt, rewards := data.ValLoss, b.Rewards
	if data.Normalize != nil && !opt.Raw {
		rewards = objective.NormalizeGroups(b, data.Normalize)
	}
	w, _ := group.Weights(rewards, b.Valid, b.B(), b.G, opt.Temperature, opt.Relative)
	ce := objective.CrossEntropy(out, b, opt.Smoothing).Floats() // [B, G] sync
	for i := range b.B() {
		loss, n, any := 0.0, 0.0, false
		for g, at := range b.Candidates(i) {
			loss, any = loss+w[at]*ce[at], true
			n += w[at] * float64(len(b.Scored(i, g)))
		}
		if any {
			losses, steps = append(losses, loss), append(steps, n)
		}
	}
	return losses, steps
}

// recordedAdvantage returns Σ_i p_i A_i of each group, with p the policy's probabilities of the recorded
// candidates renormalised within the group (the gain the policy expects among them), and their sum.
func recordedAdvantage(out selector.Output, b *selector.Batch, opt advantage.Options) (gains []float64, sum float64) {
	if opt.Anchored() {
		opt.Method = "mean_only" // recorded candidates have no reference's reward beside them
	}
	adv, _ := advantage.Compute(b.Rewards, b.Valid, b.B(), b.G, opt)
	logp := objective.Sequence(out.LogP).Floats() // sync
	for i := range b.B() {
		top, total, gain := math.Inf(-1), 0.0, 0.0
		for _, at := range b.Candidates(i) {
			top = math.Max(top, logp[at])
		}
		for _, at := range b.Candidates(i) {
			p := math.Exp(logp[at] - top)
			total += p
			gain += p * adv[at]
		}
		if total > 0 {
			gains, sum = append(gains, gain/total), sum+gain/total
		}
	}
	return gains, sum
}

// addRecorded adds the queries of a batch: each candidate is as likely as the policy says, among the recorded ones.
func addRecorded(r *recorded.Scores, src selector.Source, out selector.Output, b *selector.Batch) {
	logp := objective.Sequence(out.LogP).Floats() // [B*G] sync
	var of, rewards []float64
	for i, q := range b.Queries {
		of, rewards = of[:0], rewards[:0]
		for _, at := range b.Candidates(i) {
			of, rewards = append(of, logp[at]), append(rewards, b.Rewards[at])
		}
		r.Draw(src.ID(q), of, rewards)
	}
}

// standardError is the standard error of the mean; NaN for fewer than two.
func standardError(x []float64) float64 {
	n := float64(len(x))
	return math.Sqrt(stat.Squares(x, stat.Mean(x)) / (n * (n - 1)))
}
