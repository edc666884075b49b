package phases

import (
	"context"
	"fmt"
	"math"

	"fulcrum/internal/option"
	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil"
	"fulcrum/selector"
)

// GRPOOptions configures group-relative policy optimisation (config sections grpo and grpo_online).
type GRPOOptions struct {
	Epochs         int                                 `koanf:"epochs" help:"passes over the groups; 0 skips the phase" range:"[0,inf)"`
	LR             float64                             `koanf:"lr" help:"peak learning rate" range:"(0,inf)"`
	BatchSize      *int                                `koanf:"batch_size" help:"queries a step; null = data.batch_size" range:"[1,inf)"`
	Rollout        string                              `koanf:"rollout" help:"offline: recorded groups (data.records, else the beams); online: groups sampled from the policy and scored by the reader" enum:"offline,online"`
	GroupSize      int                                 `koanf:"group_size" help:"sampled sequences per query (online)" range:"[2,10000]"`
	SampleTemp     float64                             `koanf:"sample_temperature" help:"temperature of sampling (online), times the policy's own (temperature), which the loss sees too" range:"(0,inf)"`
	NumIterations  int                                 `koanf:"num_iterations" help:"optimizer steps on each batch before the next (μ of GRPO)" range:"[1,inf)"`
	Clip           ClipOptions                         `koanf:"clip" help:"PPO's ratio clip"`
	Advantage      rewardutil.AdvantageOptions         `koanf:"advantage" help:"group-relative advantages"`
	Curriculum     rewardutil.CurriculumOptions        `koanf:"curriculum" help:"how many of a group's best candidates count"`
	KL             rewardutil.KLOptions                `koanf:"kl" help:"KL penalty against the reference policy"`
	Temperature    rewardutil.PolicyTemperatureOptions `koanf:"temperature" help:"KL-driven temperature of the policy: sharpened while KL is low, softened while it is high"`
	Loss           string                              `koanf:"loss" help:"grpo: clipped surrogate + beta·KL; ppo_clip: the surrogate alone (beta is still adapted and reported)" enum:"grpo,ppo_clip"`
	Freeze         []string                            `koanf:"freeze" help:"parameters whose name contains one of these stay as they are in this phase"`
	OldPolicy      string                              `koanf:"old_policy" help:"the policy in the ratio's denominator: that of the run's start, of the phase's start, of the epoch's start, of every update_old_after steps, or of the batch's first pass" enum:"init,phase_start,epoch_start,every_n,batch"`
	OldPolicyHeads *int                                `koanf:"old_policy_heads" help:"attention heads of the old policy (old_policy=init); null = as the policy; 1 is the Python reference's, whatever was trained" range:"[1,inf)"`
	UpdateOldAfter int                                 `koanf:"update_old_after" help:"steps between refreshes (old_policy=every_n)" range:"[1,inf)"`
	MaxLogRatio    float64                             `koanf:"max_log_ratio" help:"log-ratios are cut to plus or minus this before they are exponentiated; inf = never, as in the Python reference" range:"(0,inf]"`
	EntropyWeight  float64                             `koanf:"entropy_weight" help:"bonus for entropy, in loss units per nat" range:"[0,inf)"`

	// Set by the program, not by users: advantages of normalised rewards within the top k, groups without
	// a signal, and the stale gradients of frozen parameters, as the Python reference has them.
	Compat bool `koanf:"-"`
}

// ClipOptions is PPO's clip range.
type ClipOptions struct {
	Epsilon     float64  `koanf:"epsilon" help:"the ratio is kept in [1-epsilon, 1+epsilon] (Schulman et al. 2017)" range:"(0,1)"`
	EpsilonHigh *float64 `koanf:"epsilon_high" help:"upper side of the range; null = epsilon (clip-higher, DAPO)" range:"(0,inf)"`
}

// DefaultGRPOOptions returns GRPO on recorded groups with an exact KL penalty.
func DefaultGRPOOptions() GRPOOptions {
	return GRPOOptions{Epochs: 5, LR: 1e-4, Rollout: "offline", GroupSize: 8, SampleTemp: 1, NumIterations: 1,
		Clip: ClipOptions{Epsilon: 0.2}, Advantage: rewardutil.DefaultAdvantageOptions(), Curriculum: rewardutil.DefaultCurriculumOptions(),
		KL: rewardutil.DefaultKLOptions(), Temperature: rewardutil.DefaultPolicyTemperatureOptions(), Loss: "grpo", OldPolicy: "phase_start", UpdateOldAfter: 1000, MaxLogRatio: 20}
}

// Validate checks the keys that depend on each other.
func (o GRPOOptions) Validate() error {
	if h := o.Clip.EpsilonHigh; h != nil && *h < o.Clip.Epsilon {
		return option.Errorf("clip.epsilon_high", "want at least epsilon = %g, got %g", o.Clip.Epsilon, *h)
	}
	if o.Rollout == "online" && o.OldPolicy != "batch" {
		return option.Errorf("old_policy", "want batch with rollout=online (the policy that sampled a group is the old policy), got %s", o.OldPolicy)
	}
	if o.OldPolicyHeads != nil && o.OldPolicy != "init" {
		return option.Errorf("old_policy_heads", "want null, or old_policy=init: only the run's initial policy is rebuilt, got old_policy=%s", o.OldPolicy)
	}
	return nil
}

// GRPO is group-relative policy optimisation (Shao et al. 2024, arXiv:2402.03300, eq. 3) with one ratio
// per sequence. Advantages are taken over the whole group and the curriculum's top k afterwards; the KL
// penalty is exact where the policy gives whole distributions. On recorded groups nobody knows the
// probability of sampling them: the ratio is then a trust region around the old policy, not an
// importance weight.
type GRPO struct {
	name  string
	opt   GRPOOptions
	optim OptimOptions
	sched rewardutil.LRScheduleOptions
	src   selector.Source
	batch int

	env       *Env
	learn     *learner
	beta      *rewardutil.KLController
	temp      *rewardutil.PolicyTemperature
	old       *frozenPolicy // ratio's denominator; nil with old_policy=batch; may be reference
	reference *frozenPolicy // of the KL penalty
	sinceOld  int           // steps since old was refreshed
	startsOld bool          // the phase starts with the old policy's weights
	recorded  int           // candidates of the whole source (offline)

	rollout      *selector.Batch // the batch in hand, for further passes
	rolloutIndex []int           // [B*G] where its candidates stand in their recorded groups
	rolloutAdv   []float64       // [B*G]
	rolloutOld   []float32       // [B*G] sequence log-probabilities under the policy of the first pass
	info         Metrics         // what was measured when the batch in hand was made
}

// NewGRPO returns a GRPO phase called name on recorded groups (offline) or on the queries of a scorer (online).
func NewGRPO(name string, opt GRPOOptions, optim OptimOptions, sched rewardutil.LRScheduleOptions, src selector.Source, batch int) *GRPO {
	if opt.BatchSize != nil {
		batch = *opt.BatchSize
	}
	return &GRPO{name: name, opt: opt, optim: optim, sched: sched, src: src, batch: batch}
}

// Name, Epochs, Source, BatchSize and Passes describe the phase to the scheduler.
func (g *GRPO) Name() string            { return g.name }
func (g *GRPO) Epochs() int             { return g.opt.Epochs }
func (g *GRPO) Source() selector.Source { return g.src }
func (g *GRPO) BatchSize() int          { return g.batch }
func (g *GRPO) Passes() int             { return g.opt.NumIterations }

// Begin takes the old and reference policies and makes the optimizer.
func (g *GRPO) Begin(env *Env, totalSteps int) error {
	g.env = env
	var err error
	if g.beta, err = rewardutil.NewKLController(g.opt.KL); err != nil {
		return err
	}
	if g.temp, err = rewardutil.NewPolicyTemperature(g.opt.Temperature); err != nil {
		return err
	}
	if g.opt.Rollout == "offline" {
		if err := g.checkGroups(); err != nil {
			return err
		}
	}
	if err := g.freezePolicies(); err != nil {
		return err
	}
	g.learn = newLearner(env.Policy.Params(), g.optim, g.opt.LR, g.sched, totalSteps)
	if err := g.learn.freeze(g.opt.Freeze, g.opt.Compat); err != nil {
		return err
	}
	if g.opt.Compat && len(g.opt.Freeze) > 0 && env.LastGradient != nil {
		g.learn.still.setStale(env.LastGradient)
	}
	return nil
}

// maxSilent is the share of groups without a learning signal that a run may have.
const maxSilent = 0.95

// checkGroups counts the recorded candidates and refuses groups that can teach nothing.
func (g *GRPO) checkGroups() error {
	const chunk = 1024
	signal, groups := 0, 0
	g.recorded = 0
	for queries := range selector.Chunks(g.src.Len(), chunk) {
		b := g.src.Recorded(queries)
		g.recorded += b.NumValid()
		_, stats := rewardutil.Advantages(b.Rewards, b.Valid, b.B(), b.G, g.opt.Advantage)
		signal, groups = signal+stats.Signal, groups+stats.Groups-stats.Empty
	}
	if silent := 1 - share(signal, groups); silent > maxSilent && !g.opt.Compat {
		return fmt.Errorf("%.4g %% of the %d recorded groups have no signal (equal rewards, or one candidate): choose another data.reward.mode or lower %s.advantage.precision", 100*silent, groups, g.name)
	}
	return nil
}

// BeginEpoch refreshes what belongs to the epoch's start.
func (g *GRPO) BeginEpoch(int) error {
	if g.opt.OldPolicy == "epoch_start" {
		g.refreshOld()
	}
	if g.opt.KL.Reference == "epoch_start" {
		g.reference.Params().CopyFrom(g.env.Policy.Params())
	}
	return nil
}

func (g *GRPO) refreshOld() {
	g.old.Params().CopyFrom(g.env.Policy.Params())
	g.sinceOld = 0
}

// Step makes one GRPO update.
func (g *GRPO) Step(_ context.Context, epoch, step, pass int, queries []int) (Metrics, error) {
	if pass == 0 {
		if g.opt.OldPolicy == "every_n" && g.sinceOld >= g.opt.UpdateOldAfter {
			g.refreshOld()
		}
		if err := g.collect(epoch, step, queries); err != nil {
			return nil, err
		}
	}
	batch := g.rollout // [B, G, T], the curriculum's top k
	temperature := g.temp.Value()
	forward := selector.ForwardOptions{Temperature: temperature, Dist: g.opt.KL.Estimator == "exact"}

	ref := g.reference.view(batch, g.rolloutIndex, forward)                                                                                   // no gradient
	out := g.env.Policy.Forward(batch, selector.ForwardOptions{Temperature: temperature, Reference: ref.dist, Dist: g.opt.EntropyWeight > 0}) // with gradient, dropout off
	logp := sequence(out.LogP)                                                                                                                // [B, G]
	old, fresh := g.oldLogProbs(batch, forward, logp, ref, pass)                                                                              // [B, G] no gradient
	denominator := old
	if fresh {
		denominator = torchx.Detach(logp) // old, but for its last bits: the ratio is exactly 1
		if g.old == g.reference {
			ref.logp = denominator
		}
	}

	adv := onDevice(logp, g.rolloutAdv, batch.B(), batch.G)
	valid := onDevice(logp, indicator(batch.Valid), batch.B(), batch.G) // 1 = counts
	n := batch.NumValid()
	ratio := torchx.Exp(clampTo(torchx.Sub(logp, denominator), g.opt.MaxLogRatio)) // [B, G]
	low, high := g.opt.Clip.sides()
	ppo := surrogate(ratio, adv, valid, low, high, n)
	kl := weighted(g.kl(out, ref, logp, batch), valid, n) // nats per sequence
	beta := g.beta.Beta()
	klWeight := beta
	if g.opt.Loss == "ppo_clip" {
		klWeight = 0
	}
	loss := ppo
	if klWeight != 0 {
		loss = torchx.Add(ppo, torchx.Scale(kl, klWeight))
	}
	if g.opt.EntropyWeight > 0 {
		loss = torchx.Sub(loss, torchx.Scale(entropy(out.Dist, maskTensor(logp, batch), countSteps(batch)), g.opt.EntropyWeight))
	}
	m, err := g.learn.update(loss, step)
	if err != nil {
		return nil, err
	}

	host := read(ppo, kl, logp, old, out.Entropy)
	if err := g.measure(m, host[2], host[3], fresh); err != nil {
		return nil, err
	}
	m["ppo_loss"], m["kl"], m["kl_loss"], m["kl_beta"] = host[0][0], host[1][0], klWeight*host[1][0], beta
	if h := host[4]; h != nil {
		m["entropy"] = meanEntropy(h, batch)
	}
	if g.opt.Temperature.Enabled {
		m["policy_temperature"] = temperature
	}
	for k, x := range g.info {
		m[k] = x
	}
	if g.opt.OldPolicy == "batch" && pass == 0 {
		g.rolloutOld = rounded(host[2])
	}
	g.beta.Step(host[1][0])
	g.temp.Step(host[1][0])
	g.sinceOld++
	return m, nil
}

// sides are the widths of the clip range below and above 1.
func (o ClipOptions) sides() (low, high float64) {
	if o.EpsilonHigh != nil {
		return o.Epsilon, *o.EpsilonHigh
	}
	return o.Epsilon, o.Epsilon
}

// collect makes the batch in hand: recorded groups or fresh samples, their advantages over the whole
// group, then the curriculum's top k.
func (g *GRPO) collect(epoch, step int, queries []int) error {
	var groups *selector.Batch
	if g.opt.Rollout == "online" {
		src := g.src.(selector.Scorer)
		groups = g.env.Policy.Sample(src, queries, g.opt.GroupSize, g.env.Data.Shots, g.opt.SampleTemp*g.temp.Value(), rng.Key(g.env.Seed, "rollout "+g.name, step))
		if err := src.Score(groups); err != nil {
			return err
		}
	} else {
		groups = g.src.Recorded(queries)
	}
	var top rewardutil.Selection
	var adv []float64
	var before, after rewardutil.AdvantageStats
	if g.opt.Compat {
		top, adv, after = g.opt.Curriculum.ApplyCompat(normalizeGroups(groups, g.env.Data.Normalize), groups.Valid, groups.B(), groups.G, epoch, g.opt.Advantage.Clip)
		before = after
	} else {
		top, adv, before, after = g.opt.Curriculum.Apply(groups.Rewards, groups.Valid, groups.B(), groups.G, epoch, g.opt.Advantage)
	}
	g.rollout, g.rolloutIndex, g.rolloutAdv = groups.Take(top.K, top.Index, top.Valid), top.Index, adv
	g.rolloutOld = nil
	mean := 0.0
	for i, v := range groups.Valid {
		if v {
			mean += groups.Rewards[i]
		}
	}
	g.info = Metrics{
		"mean_reward":    mean / math.Max(float64(groups.NumValid()), 1),
		"mean_advantage": after.Mean, "std_advantage": after.Std, "max_advantage": after.MaxAbs,
		"advantage_clipped": share(after.Clipped, after.Entries),
		"signal_share":      before.SignalShare(), "signal_share_top_k": after.SignalShare(),
		"constant_good_groups": before.ConstantGood, "constant_bad_groups": before.ConstantBad,
		"adv_hist": advantageHistogram(adv, g.rollout.Valid),
		"top_k":    top.K, "items": g.rollout.NumValid(),
	}
	return nil
}

func share(n, of int) float64 { return float64(n) / math.Max(float64(of), 1) }

// oldLogProbs returns the old policy's log-probabilities [B, G], and whether that policy has the very
// weights that the numerator has now.
func (g *GRPO) oldLogProbs(b *selector.Batch, forward selector.ForwardOptions, logp torchx.Tensor, ref view, pass int) (torchx.Tensor, bool) {
	switch {
	case g.opt.OldPolicy == "batch" && pass == 0:
		return torchx.Detach(logp), true
	case g.opt.OldPolicy == "batch":
		return torchx.ToLike(torchx.From(g.rolloutOld, b.B(), b.G), logp), false
	case g.old == g.reference:
		return ref.logp, g.sinceOld == 0 && g.startsOld
	}
	forward.Dist = false
	return g.old.view(b, g.rolloutIndex, forward).logp, g.sinceOld == 0 && g.startsOld
}

// kl is the penalty of each candidate [B, G] in nats per sequence, with gradient.
func (g *GRPO) kl(out selector.Output, ref view, logp torchx.Tensor, b *selector.Batch) torchx.Tensor {
	if g.opt.KL.Estimator == "exact" {
		return maskedSum(out.KL, b)
	}
	return sampledKL(g.opt.KL.Estimator, torchx.Sub(logp, ref.logp), g.opt.MaxLogRatio)
}

// nearlyEqual is how far the log-probabilities of equal weights may lie apart when they were computed in
// batches of different shapes.
const nearlyEqual = 1e-3

// measure adds the metrics of the ratios, from the log-probabilities [B*G] that made them.
func (g *GRPO) measure(m Metrics, logp, old []float64, fresh bool) error {
	var sum float64
	clipped, clamped, n := 0, 0, 0
	low, high := g.opt.Clip.sides()
	for i, ok := range g.rollout.Valid {
		if !ok {
			continue
		}
		n++
		d := float64(float32(logp[i]) - float32(old[i])) // as the step computed it
		if fresh {
			if !(math.Abs(d) <= nearlyEqual) {
				return fmt.Errorf("log-probability %.9g at the first step after the old policy was refreshed, and %.9g by the old policy: the policy's forward pass is not deterministic", logp[i], old[i])
			}
			d = 0
		}
		if math.Abs(d) > g.opt.MaxLogRatio {
			clamped++
			d = math.Copysign(g.opt.MaxLogRatio, d)
		}
		ratio := math.Exp(d)
		sum += ratio
		if ratio < 1-low || ratio > 1+high {
			clipped++
		}
	}
	m["mean_ratio"] = sum / math.Max(float64(n), 1)
	m["clip_fraction"], m["clamp_fraction"] = share(clipped, n), share(clamped, n)
	return nil
}

// meanEntropy averages the entropies [B*G*T] over the scored steps.
func meanEntropy(h []float64, b *selector.Batch) float64 {
	sum, n := 0.0, 0
	for i, scored := range b.Mask {
		if scored != 0 {
			sum += h[i]
			n++
		}
	}
	return sum / math.Max(float64(n), 1)
}

func rounded(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

func countSteps(b *selector.Batch) float64 {
	n := 0.0
	for _, m := range b.Mask {
		n += float64(m)
	}
	return n
}

// advantageBins is the length of adv_hist: bins of width 0.5 over ±5, the default clip.
const advantageBins = 20

// advantageHistogram counts valid advantages in 20 equal bins over [-5, 5].
func advantageHistogram(adv []float64, valid []bool) []float64 {
	h := make([]float64, advantageBins)
	for i, ok := range valid {
		if ok && !math.IsNaN(adv[i]) {
			h[max(0, min(advantageBins-1, int(math.Floor((adv[i]+5)/10*advantageBins))))]++
		}
	}
	return h
}

// EndEpoch moves β and the policy temperature by the epoch's mean KL and reports a β on its bound.
func (g *GRPO) EndEpoch(int, Metrics) (Metrics, error) {
	g.beta.EndEpoch()
	g.temp.EndEpoch()
	beta, o := g.beta.Beta(), g.opt.KL
	moves := o.Controller != "fixed" && (beta > 0 || o.LiftZero)
	return Metrics{"kl_beta_next": beta, "kl_beta_at_bound": moves && (beta <= o.BetaMin || beta >= o.BetaMax)}, nil
}

// Reference is the policy of the KL penalty.
func (g *GRPO) Reference() selector.Policy { return g.reference.Policy }

// ReferenceName is that policy as grpo.kl.reference names it.
func (g *GRPO) ReferenceName() string { return g.opt.KL.Reference }
