package phases

import (
	"context"
	"encoding/json"
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
	SampleTemp     float64                             `koanf:"sample_temperature" help:"temperature of sampling (online); the loss sees temperature 1" range:"(0,inf)"`
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
	old       selector.Policy // ratio's denominator; nil with old_policy=batch
	reference selector.Policy // of the KL penalty
	sinceOld  int             // steps since old was refreshed
	// oldIsReference: both are the policy of the phase's start, so one frozen forward pass serves both.
	oldIsReference bool
	rollout        *selector.Batch // the batch in hand, for further passes
	rolloutAdv     []float64
	rolloutOld     []float32 // [B*G] sequence log-probabilities under the policy of the first pass
	info           Metrics   // what was measured when the batch in hand was made
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
	g.learn = newLearner(env.Policy.Params(), g.optim, g.opt.LR, g.sched, totalSteps)
	var err error
	if g.beta, err = rewardutil.NewKLController(g.opt.KL); err != nil {
		return err
	}
	if g.temp, err = rewardutil.NewPolicyTemperature(g.opt.Temperature); err != nil {
		return err
	}
	g.oldIsReference = g.opt.OldPolicy == "phase_start" && g.opt.KL.Reference == "phase_start"
	if g.opt.OldPolicy != "batch" && !g.oldIsReference {
		g.old = env.Policy.Clone()
	}
	if g.opt.KL.Reference == "init" {
		g.reference = env.Initial
	} else {
		g.reference = env.Policy.Clone()
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
func (g *GRPO) Step(ctx context.Context, epoch, step, pass int, queries []int) (Metrics, error) {
	if g.opt.OldPolicy == "every_n" && step > 0 && step%g.opt.UpdateOldAfter == 0 {
		g.refreshOld()
	}
	if pass == 0 {
		if err := g.collect(epoch, step, queries); err != nil {
			return nil, err
		}
	}
	batch := g.rollout // [B, G, T], the curriculum's top k
	exact := g.opt.KL.Estimator == "exact"
	temperature := g.temp.Value()
	forward := selector.ForwardOptions{Temperature: temperature, Dist: exact || g.opt.EntropyWeight > 0}

	out := g.env.Policy.Forward(batch, forward)  // with gradient, dropout off
	logp := sequence(out.LogP)                   // [B, G]
	ref := g.frozen(g.reference, batch, forward) // no gradient
	oldLogp, fresh := g.oldLogProbs(batch, forward, logp, ref, pass)

	adv := onDevice(logp, g.rolloutAdv, batch.B(), batch.G)
	valid := onDevice(logp, indicator(batch.Valid), batch.B(), batch.G) // 1 = counts
	mask := maskTensor(logp, batch)                                     // 1 = a scored step
	n := batch.NumValid()
	logRatio := torchx.Sub(logp, oldLogp)
	ratio := torchx.Exp(torchx.Clamp(logRatio, -maxLogRatio, maxLogRatio)) // [B, G]
	low, high := g.opt.Clip.Epsilon, g.opt.Clip.Epsilon
	if g.opt.Clip.EpsilonHigh != nil {
		high = *g.opt.Clip.EpsilonHigh
	}
	ppo := surrogate(ratio, adv, valid, low, high, n)
	kl := weighted(g.kl(out, ref, logp, mask), valid, n) // nats per sequence
	beta := g.beta.Beta()
	loss := torchx.Add(ppo, torchx.Scale(kl, beta))
	if g.opt.EntropyWeight > 0 {
		loss = torchx.Sub(loss, torchx.Scale(entropy(out.Dist, mask, countSteps(batch)), g.opt.EntropyWeight))
	}
	m, err := g.learn.update(loss, step)
	if err != nil {
		return nil, err
	}

	if err := g.measure(m, ppo, kl, ratio, logRatio, out, batch, beta, low, high, temperature, fresh); err != nil {
		return nil, err
	}
	g.beta.Step(m["kl"].(float64))
	g.temp.Step(m["kl"].(float64))
	g.sinceOld++
	return m, nil
}

// collect makes the batch in hand: recorded groups or fresh samples, their advantages over the whole
// group, then the curriculum's top k.
func (g *GRPO) collect(epoch, step int, queries []int) error {
	var groups *selector.Batch
	if g.opt.Rollout == "online" {
		src := g.src.(selector.Scorer)
		groups = g.env.Policy.Sample(src, queries, g.opt.GroupSize, g.env.Data.Shots, g.opt.SampleTemp, rng.Key(g.env.Seed, "rollout "+g.name, step))
		if err := src.Score(groups); err != nil {
			return err
		}
	} else {
		groups = g.src.Recorded(queries)
	}
	top, adv, before, after := g.opt.Curriculum.Apply(groups.Rewards, groups.Valid, groups.B(), groups.G, epoch, g.opt.Advantage)
	g.rollout, g.rolloutAdv = groups.Take(top.K, top.Index, top.Valid), adv
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

// oldLogProbs returns the ratio's denominator [B, G] without gradient, and whether it was taken from
// the very weights that the numerator has now: the ratio must then be exactly 1.
func (g *GRPO) oldLogProbs(b *selector.Batch, forward selector.ForwardOptions, logp torchx.Tensor, ref selector.Output, pass int) (torchx.Tensor, bool) {
	switch {
	case g.opt.OldPolicy == "batch" && pass == 0:
		old := torchx.Detach(logp)
		if g.opt.NumIterations > 1 {
			g.rolloutOld = torchx.Data[float32](old) // sync
		}
		return old, true
	case g.opt.OldPolicy == "batch":
		return torchx.ToLike(torchx.From(g.rolloutOld, b.B(), b.G), logp), false
	case g.oldIsReference:
		return sequence(ref.LogP), g.sinceOld == 0
	}
	return sequence(g.frozen(g.old, b, forward).LogP), g.sinceOld == 0
}

// frozen evaluates an old or reference policy without gradient.
func (g *GRPO) frozen(p selector.Policy, b *selector.Batch, forward selector.ForwardOptions) selector.Output {
	defer torchx.NoGrad()()
	return p.Forward(b, forward)
}

// kl is the penalty of each candidate [B, G] in nats per sequence, with gradient.
func (g *GRPO) kl(out, ref selector.Output, logp, mask torchx.Tensor) torchx.Tensor {
	if g.opt.KL.Estimator == "exact" {
		return exactKL(out.Dist, ref.Dist, mask)
	}
	return sampledKL(g.opt.KL.Estimator, torchx.Sub(logp, sequence(ref.LogP)))
}

// measure adds the step's metrics with one wait for the device.
func (g *GRPO) measure(m Metrics, ppo, kl, ratio, logRatio torchx.Tensor, out selector.Output, b *selector.Batch, beta, low, high, temperature float64, fresh bool) error {
	defer torchx.NoGrad()()
	values := []torchx.Tensor{ppo, kl}
	if !out.Dist.Nil() {
		values = append(values, entropy(out.Dist, maskTensor(ratio, b), countSteps(b)))
	}
	v := scalars(values...)
	ratios, logs := ratio.Floats(), logRatio.Floats()
	var sum float64
	clipped, clamped, n := 0, 0, 0
	for i, ok := range b.Valid {
		if !ok {
			continue
		}
		n++
		sum += ratios[i]
		if ratios[i] < 1-low || ratios[i] > 1+high {
			clipped++
		}
		if math.Abs(logs[i]) > maxLogRatio {
			clamped++
		}
		if fresh && ratios[i] != 1 {
			return fmt.Errorf("ratio %.9g at the first step after the old policy was refreshed, want exactly 1: the policy's forward pass is not deterministic", ratios[i])
		}
	}
	m["ppo_loss"], m["kl"], m["kl_loss"], m["kl_beta"] = v[0], v[1], beta*v[1], beta
	m["mean_ratio"] = sum / math.Max(float64(n), 1)
	m["clip_fraction"], m["clamp_fraction"] = share(clipped, n), share(clamped, n)
	if len(v) > 2 {
		m["entropy"] = v[2]
	}
	if g.opt.Temperature.Enabled {
		m["policy_temperature"] = temperature
	}
	for k, x := range g.info {
		m[k] = x
	}
	return nil
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
		if ok {
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
	atBound := o.Controller != "fixed" && (beta <= o.BetaMin || beta >= o.BetaMax)
	return Metrics{"kl_beta_next": beta, "kl_beta_at_bound": atBound}, nil
}

// Reference is the policy of the KL penalty.
func (g *GRPO) Reference() selector.Policy { return g.reference }

type grpoValues struct {
	Beta        rewardutil.ControlState `json:"beta"`
	Temperature rewardutil.ControlState `json:"temperature"`
	SinceOld    int                     `json:"since_old"`
}

// State returns the optimizer, the controllers and the frozen policies.
func (g *GRPO) State() PhaseState {
	m, v, steps := g.learn.optim.State()
	values, _ := json.Marshal(grpoValues{g.beta.State(), g.temp.State(), g.sinceOld})
	s := PhaseState{Values: values, M: m, V: v, OptimizerSteps: steps, Frozen: map[string][]float32{}}
	if g.old != nil {
		s.Frozen["old"] = g.old.Params().Values()
	}
	if g.opt.KL.Reference != "init" {
		s.Frozen["reference"] = g.reference.Params().Values()
	}
	return s
}

// Restore sets what State returned.
func (g *GRPO) Restore(s PhaseState) error {
	var v grpoValues
	if err := json.Unmarshal(s.Values, &v); err != nil {
		return fmt.Errorf("%s: saved state: %w", g.name, err)
	}
	if err := g.beta.Restore(v.Beta); err != nil {
		return fmt.Errorf("%s: saved state: %w", g.name, err)
	}
	if err := g.temp.Restore(v.Temperature); err != nil {
		return fmt.Errorf("%s: saved state: %w", g.name, err)
	}
	g.sinceOld = v.SinceOld
	for role, p := range map[string]selector.Policy{"old": g.old, "reference": g.reference} {
		if w, ok := s.Frozen[role]; ok && p != nil {
			if len(w) != p.Params().Numel() {
				return fmt.Errorf("%s: the saved %s policy has %d weights, want %d", g.name, role, len(w), p.Params().Numel())
			}
			p.Params().SetValues(w)
		}
	}
	return g.learn.optim.SetState(s.M, s.V, s.OptimizerSteps)
}

// End frees the optimizer and the frozen policies.
func (g *GRPO) End() {
	g.learn.free()
	if g.old != nil {
		g.old.Free()
	}
	if g.reference != g.env.Initial {
		g.reference.Free()
	}
	g.rollout, g.rolloutAdv, g.rolloutOld = nil, nil, nil
}
