package preflight

import (
	"cmp"
	"context"
	"math"
	"slices"

	"fulcrum/internal/stat"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
)

// This file computes what the first step reports again, from rewards, lengths and log-probabilities by the formulas of the papers, and
// not by the code that phases share: advantages are z-scores with a floor, a loss is divided by what its name says.

// again is how far a number of a step may lie from what it should be, in its own size or in 1: sums of float32 are nearer.
const again = 1e-3

// same compares a number of a row with what it should be.
func (p *probe) same(check string, m phases.Metrics, name string, want float64, why string) {
	got := number(m, name)
	if math.IsNaN(got) {
		return
	}
	p.over(check, math.Abs(got-want)/math.Max(1, math.Abs(want)), again, "%s is %.5g in the first step, and the rewards of its batch make "+
		"it %.5g: %s", name, got, want, why)
}

// recompute holds the first step against its formulas. m is its row, b its batch of whole groups.
func (p *probe) recompute(ctx context.Context, m phases.Metrics, b *selector.Batch) error {
	e, ok := p.phase.(phases.Expecter)
	if !ok || p.AllowNonFinite {
		return nil
	}
	lim := e.Expected()
	if lim.Imitation != nil && p.Credit != nil {
		p.imitatedAgain(m, b, *lim.Imitation)
	}
	if lim.Policy == nil {
		return nil
	}
	lowest, known := p.comparedAgain(m, b, *lim.Policy)
	o := lim.Policy.Advantage
	if !known || o.Method != "z_score" || o.MinStd == 0 || lowest < o.MinStd || math.IsInf(lowest, 1) {
		return nil
	}
	return p.floored(ctx, b, *lim.Policy)
}

// floored makes the first step once more with rewards so small that the floor under every deviation must act.
func (p *probe) floored(ctx context.Context, b *selector.Batch, of doctor.PolicyLoss) error {
	largest := 0.0
	for i := range b.B() {
		largest = max(largest, deviation(valid(b, i), of.Advantage))
	}
	p.part.scale = of.Advantage.MinStd / (2 * largest)
	defer func() { p.part.scale = 0 }()
	m, err := p.anew(ctx)
	if err == nil {
		p.comparedAgain(m, p.part.last, of)
	}
	return err
}

// comparedAgain computes the advantages and the surrogate of a step whose ratios are 1. lowest is the least deviation of a group's rewards.
func (p *probe) comparedAgain(m phases.Metrics, b *selector.Batch, of doctor.PolicyLoss) (lowest float64, known bool) {
	adv, ok := advantages(b, of.Advantage)
	if !ok || of.MaskTruncated || of.Curriculum.Baseline == "subset" {
		return 0, false
	}
	lowest = math.Inf(1)
	var all, telling, kept []float64 // advantages of the candidates left, of those in groups with a signal, and lengths of the first
	for i := range b.B() {
		var at []int
		for _, k := range b.Candidates(i) {
			at = append(at, k)
		}
		slices.SortStableFunc(at, func(x, y int) int { return cmp.Compare(b.Rewards[y], b.Rewards[x]) })
		at = at[:min(len(at), of.Curriculum.TopK(1, b.G))]
		signal := slices.ContainsFunc(at, func(k int) bool { return adv[k] != 0 })
		for _, k := range at {
			all, kept = append(all, adv[k]), append(kept, float64(len(b.Scored(k/b.G, k%b.G))))
			if signal {
				telling = append(telling, adv[k])
			}
		}
		if signal {
			lowest = min(lowest, deviation(valid(b, i), of.Advantage))
		}
	}
	if float64(len(all)) != number(m, "items") || len(telling) < 2 { // groups were left out or drawn anew
		return lowest, false
	}
	mean := stat.Mean(telling)
	squares, sum, tokens := stat.Squares(telling, mean), 0.0, 0.0
	const why = "normalised twice, without the floor under a deviation, of other candidates, or of another baseline"
	p.same("advantages_differ", m, "mean_advantage", mean, why)
	p.same("advantages_differ", m, "std_advantage", math.Sqrt(squares/float64(len(telling)-1)), why)
	p.same("advantages_differ", m, "max_advantage", group.MaxAbs(telling), why)
	for i, a := range all {
		if of.Mean != "candidates" {
			a *= kept[i]
		}
		sum, tokens = sum+a, tokens+kept[i]
	}
	divisor, named := map[string]float64{"candidates": float64(len(all)), "tokens": tokens,
		"longest": float64(len(all) * cmp.Or(p.Data.Shots, b.T))}[of.Mean]
	if named { // an added loss has a divisor of its own
		p.same("loss_differs", m, "ppo_loss", -sum/divisor, "the loss has other advantages, or is divided by other lengths")
	}
	return lowest, true
}

func valid(b *selector.Batch, i int) []float64 {
	r, _ := group.Gather(group.Row(b.Rewards, b.Valid, i, b.G))
	return r
}

// deviation is that of a group's rewards.
func deviation(r []float64, o advantage.Options) float64 {
	squares, n := stat.Squares(r, stat.Mean(r)), float64(len(r))
	if o.Std != "population" {
		n--
	}
	return math.Sqrt(squares / math.Max(n, 1))
}

// advantages computes those of a batch [B*G]; ok is false for methods without a formula here.
func advantages(b *selector.Batch, o advantage.Options) (adv []float64, ok bool) {
	adv = make([]float64, len(b.Valid))
	squares, freedom := 0.0, 0.0
	for i := range b.B() {
		r := valid(b, i)
		if len(r) < 2 || slices.Max(r)-slices.Min(r) <= max(o.Precision, group.Rounding*group.MaxAbs(r)) {
			continue
		}
		mean, std, n, divisor := stat.Mean(r), deviation(r, o), float64(len(r)), 0.0
		switch o.Method {
		case "z_score":
			divisor = max(std, o.MinStd)
		case "mean_only", "batch_std":
			divisor = 1
		case "leave_one_out":
			divisor = (n - 1) / n
		default:
			return nil, false
		}
		if o.Std != "population" {
			n--
		}
		squares, freedom = squares+std*std*n, freedom+n
		for _, at := range b.Candidates(i) {
			adv[at] = (b.Rewards[at] - mean) / divisor
		}
	}
	for at, a := range adv {
		if a == 0 {
			continue
		}
		if o.Method == "batch_std" {
			a /= math.Sqrt(squares / freedom)
		}
		adv[at] = math.Max(-o.Clip, math.Min(o.Clip, a))
	}
	return adv, o.BaselineShift == 0 // a shift moves the candidates at the mean too
}

// imitatedAgain computes the weights of imitation, a softmax of the rewards, and its loss: -Σ w·log π by the queries, or by the steps that
// count with their weights.
func (p *probe) imitatedAgain(m phases.Metrics, b *selector.Batch, of doctor.Imitation) {
	tau, shaped := number(m, "temperature"), *b
	counted := p.Credit(b, tau)
	if of.Best {
		tau = math.NaN()
	} else if !of.Raw && p.Data.Normalize != nil {
		shaped.Rewards = objective.NormalizeGroups(b, p.Data.Normalize)
	}
	var weights []float64
	queries, off := 0.0, 0.0
	for i := range b.B() {
		r, t := valid(&shaped, i), tau
		if len(r) > 0 {
			queries++
		}
		switch {
		case !of.Relative || len(r) == 0:
		case slices.Max(r)-slices.Min(r) <= group.Rounding*group.MaxAbs(r):
			t = math.Inf(1)
		default:
			t *= deviation(r, advantage.Options{})
		}
		weights = append(weights, imitated(&shaped, i, t)...)
	}
	for at, w := range counted {
		off = max(off, math.Abs(w-weights[at]))
	}
	p.over("loss_differs", off, again, "a weight of imitation is off by %.3g from the softmax of its group's rewards at τ = %.3g: the "+
		"weights are those of others, or of another temperature", off, tau)
	seen := p.spy.seen
	if seen == nil || seen.B() != b.B() || seen.G != b.G || seen.T != b.T {
		return // in parts, or the best candidates alone
	}
	sum, divisor := 0.0, 0.0
	for at, x := range p.spy.logp {
		if w := weights[at/b.T]; b.Mask[at] != 0 && b.Valid[at/b.T] {
			sum, divisor = sum-w*x, divisor+w
		}
	}
	if !of.PerToken {
		divisor = queries
	}
	p.same("loss_differs", m, "loss", sum/divisor, "the weights are those of others, or the loss is divided by other lengths")
}
