// Package grpo trains by group-relative policy optimisation.
package grpo

import (
	"context"
	"fmt"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/control"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// Options configures group-relative policy optimisation (config sections grpo and grpo_online).
type Options struct {
	// passes over the groups; 0 skips the phase
	Epochs int `koanf:"epochs" range:"[0,inf)" also:"num_train_epochs,num_epochs,max_epochs,epoch"`
	// queries of an epoch, drawn anew each time (the first ones without data.shuffle); null = all
	EpochQueries *int `koanf:"epoch_queries" range:"[1,inf)"`
	// peak learning rate
	LR float64 `koanf:"lr" range:"(0,inf)" also:"learning_rate"`
	// queries a step; null = data.batch_size
	BatchSize *int `koanf:"batch_size" range:"[1,inf)"`
	// queries in one forward and backward pass, to bound memory; the gradients of a step's passes add up to
	// those of the same loss; null = all at once
	MicroBatch *int `koanf:"micro_batch" range:"[1,inf)"`
	// offline: recorded groups (data.records, else the beams); online: groups sampled from the old policy and
	// scored by the reader or the rewards
	Rollout string `koanf:"rollout" enum:"offline,online"`
	// sampled sequences per query (online)
	GroupSize int `koanf:"group_size" range:"[2,10000]" also:"num_generations,num_rollouts,rollout_n,num_samples"`
	// temperature of sampling (online), times the policy's own (temperature); old, new and reference
	// log-probabilities are taken at it too. Recorded groups (offline) were not sampled by the policy: theirs
	// are taken without it
	SampleTemp float64 `koanf:"sample_temperature" range:"(0,inf)" also:"sampling_temperature,rollout_temperature"`
	// optimizer steps on each batch before the next (μ of GRPO)
	NumIterations int `koanf:"num_iterations" range:"[1,inf)" also:"ppo_epochs,num_ppo_epochs,inner_epochs,mu"`
	// probability ratios and KL of whole sequences, or of each of their steps (a token policy's tokens)
	Ratio string `koanf:"ratio" enum:"sequence,token"`
	// grpo: clipped surrogate + beta·KL, the mean over a candidate's tokens, then over candidates; bnpo, dapo:
	// over all tokens of the batch; dr_grpo: summed over tokens, divided by candidates and the longest length
	// allowed; gspo: grpo with one ratio a candidate, length-normalised; ppo_clip: grpo's surrogate alone (beta
	// is still adapted and reported)
	Loss string `koanf:"loss" enum:"grpo,bnpo,dapo,dr_grpo,gspo,ppo_clip" also:"loss_type"`
	// PPO's ratio clip
	Clip ClipOptions `koanf:"clip"`
	// completions cut at the length limit stay in their group's baseline but not in the loss (overlong
	// filtering, DAPO)
	MaskTruncated bool `koanf:"mask_truncated" also:"mask_truncated_completions"`
	// groups whose rewards are equal: keep (KL still acts on them), filter (the loss is averaged over the
	// others), or resample: groups of other queries are drawn until the batch is full (dynamic sampling, DAPO)
	ZeroVariance string `koanf:"zero_variance" enum:"keep,filter,resample"`
	// rounds of drawing that fill a batch (zero_variance=resample); it stays short where they do not
	MaxResamples int `koanf:"max_resamples" range:"[1,100]"`
	// group-relative advantages
	Advantage advantage.Options `koanf:"advantage"`
	// how many of a group's best candidates count
	Curriculum advantage.CurriculumOptions `koanf:"curriculum"`
	// KL penalty against the reference policy
	KL control.KLOptions `koanf:"kl"`
	// KL-driven temperature of the policy: sharpened while KL is low, softened while it is high
	Temperature control.PolicyTemperatureOptions `koanf:"temperature"`
	// parameters whose name contains one of these stay as they are in this phase
	Freeze []string `koanf:"freeze"`
	// the policy in the ratio's denominator, which also samples the groups of rollout=online (ratios are then
	// importance weights): that of the run's start, of the phase's start, of the epoch's start, of every
	// update_old_after steps, or of the batch's first pass
	OldPolicy string `koanf:"old_policy" enum:"init,phase_start,epoch_start,every_n,batch"`
	// attention heads of the old policy (old_policy=init); null = as the policy; 1 is the Python reference's,
	// whatever was trained
	OldPolicyHeads *int `koanf:"old_policy_heads" range:"[1,inf)"`
	// optimizer steps between refreshes (old_policy=every_n), which come between batches only; up to
	// num_iterations: at every batch, without a copy of the weights, as with old_policy=batch
	UpdateOldAfter int `koanf:"update_old_after" range:"[1,inf)"`
	// log-ratios are cut to plus or minus this before they are exponentiated; inf = never, as in the Python
	// reference
	MaxLogRatio float64 `koanf:"max_log_ratio" range:"(0,inf]"`
	// bonus for entropy, in loss units per nat
	EntropyWeight float64 `koanf:"entropy_weight" range:"[0,inf)" also:"entropy_coef,ent_coef,entropy_coeff,entropy_bonus"`
	// sampled completions kept in completions.jsonl (token policies)
	Completions phases.CompletionOptions `koanf:"completions"`

	// Set by the program, not by users: advantages of normalised rewards within the top k, groups without
	// a signal, and the stale gradients of frozen parameters, as the Python reference has them.
	Compat bool `koanf:"-"`
}

// ClipOptions is PPO's clip range.
type ClipOptions struct {
	// the ratio is kept in [1-epsilon, 1+epsilon] (Schulman et al. 2017)
	Epsilon float64 `koanf:"epsilon" range:"(0,1)" also:"clip_epsilon,cliprange,clip_range,clip_ratio,clip_eps,eps_clip"`
	// upper side of the range; null = epsilon (clip-higher, DAPO)
	EpsilonHigh *float64 `koanf:"epsilon_high" range:"(0,inf)" also:"clip_epsilon_high,clip_ratio_high"`
}

// DefaultOptions returns GRPO on recorded groups with an exact KL penalty.
func DefaultOptions() Options {
	return Options{Epochs: 5, LR: 1e-4, Rollout: "offline", GroupSize: 8, SampleTemp: 1, NumIterations: 1, Ratio: "sequence", Loss: "grpo",
		Clip: ClipOptions{Epsilon: 0.2}, ZeroVariance: "keep", MaxResamples: 3,
		Advantage: advantage.DefaultOptions(), Curriculum: advantage.DefaultCurriculumOptions(),
		KL: control.DefaultKLOptions(), Temperature: control.DefaultPolicyTemperatureOptions(),
		OldPolicy: "phase_start", UpdateOldAfter: 1000, MaxLogRatio: 20, Completions: phases.DefaultCompletionOptions()}
}

// Validate checks the keys that depend on each other.
func (o Options) Validate() error {
	if h := o.Clip.EpsilonHigh; h != nil && *h < o.Clip.Epsilon {
		return option.Errorf("clip.epsilon_high", "want at least epsilon = %g, got %g", o.Clip.Epsilon, *h)
	}
	if o.Rollout == "online" && (o.OldPolicy == "init" || o.OldPolicy == "phase_start") {
		return option.Errorf("old_policy", "want batch, every_n or epoch_start with rollout=online (the old policy samples the groups and has to follow), got %s", o.OldPolicy)
	}
	if o.OldPolicyHeads != nil && o.OldPolicy != "init" {
		return option.Errorf("old_policy_heads", "want null, or old_policy=init: only the run's initial policy is rebuilt, got old_policy=%s", o.OldPolicy)
	}
	if o.Ratio == "sequence" && (o.Loss == "bnpo" || o.Loss == "dapo" || o.Loss == "dr_grpo") {
		return option.Errorf("loss", "want grpo, gspo or ppo_clip with ratio=sequence: %s averages over tokens (ratio=token)", o.Loss)
	}
	if o.ZeroVariance == "resample" && o.Rollout != "online" {
		return option.Errorf("zero_variance", "want keep or filter with rollout=%s: there are no other groups than the recorded ones", o.Rollout)
	}
	return nil
}

// ValidateTokens checks what only a token policy asks for: nobody sums over a vocabulary to differentiate
// an exact KL, and there are no heads to choose.
func (o Options) ValidateTokens() error {
	if o.KL.Estimator == "exact" {
		return option.Errorf("kl.estimator", "want k1, k2 or k3 with a token policy: the exact KL over a vocabulary has no gradient here")
	}
	if o.OldPolicyHeads != nil {
		return option.Errorf("old_policy_heads", "want null with a token policy")
	}
	return nil
}

// Phase is group-relative policy optimisation (Shao et al. 2024, arXiv:2402.03300, eq. 3), with one ratio
// per sequence or one per token. Advantages are taken over the whole group and the curriculum's top k
// afterwards; the KL penalty is exact where the policy gives whole distributions. On recorded groups
// nobody knows the probability of sampling them: the ratio is then a trust region around the old policy,
// not an importance weight.
//
// grpo.go is the algorithm; rollout.go makes its batches, loss.go its loss, frozen.go its old and
// reference policies, measure.go its metrics, state.go what a resume needs.
type Phase struct {
	name  string
	opt   Options
	optim phases.OptimOptions
	sched schedule.LROptions
	src   selector.Source
	batch int

	env       *phases.Env
	text      bool // the policy's steps are tokens: it has no distributions to look at
	learn     *phases.Learner
	beta      *control.KLController
	temp      *control.PolicyTemperature
	old       *frozenPolicy // ratio's denominator, and what samples; the policy itself with old_policy=batch; may be reference
	reference *frozenPolicy // of the KL penalty
	sinceOld  int           // steps since old was refreshed
	startsOld bool          // the phase starts with the old policy's weights
	recorded  int           // candidates of the whole source (offline)
	checked   bool          // Check has looked at the recorded groups
	showNext  bool          // no batch of this epoch has been kept for reading yet

	hand rollout // the batch in hand, for one or more passes
}

// New returns a GRPO phase called name on recorded groups (offline) or on the queries of a scorer (online).
func New(name string, opt Options, optim phases.OptimOptions, sched schedule.LROptions, src selector.Source, batch int) *Phase {
	if opt.BatchSize != nil {
		batch = *opt.BatchSize
	}
	if opt.OldPolicy == "every_n" && opt.UpdateOldAfter <= opt.NumIterations {
		opt.OldPolicy = "batch" // the same policy, without a copy of its weights
	}
	return &Phase{name: name, opt: opt, optim: optim, sched: sched, src: src, batch: batch}
}

// Name, Epochs, Source, BatchSize and Passes describe the phase to the scheduler.
func (g *Phase) Name() string            { return g.name }
func (g *Phase) Epochs() int             { return g.opt.Epochs }
func (g *Phase) Source() selector.Source { return g.src }
func (g *Phase) BatchSize() int          { return g.batch }
func (g *Phase) Passes() int             { return g.opt.NumIterations }

// EpochQueries is how many queries an epoch takes.
func (g *Phase) EpochQueries() int { return phases.AtMost(g.opt.EpochQueries) }

// Check asks all that can be wrong with the options for this policy, and whether the recorded groups can teach anything.
func (g *Phase) Check(env *phases.Env) error {
	if _, text := env.Policy.(selector.TokenPolicy); text {
		if err := g.opt.ValidateTokens(); err != nil {
			return fmt.Errorf("%s.%w", g.name, err)
		}
	}
	if _, err := control.NewKLController(g.opt.KL); err != nil {
		return err
	}
	if _, err := control.NewPolicyTemperature(g.opt.Temperature); err != nil {
		return err
	}
	if _, err := g.optim.OwnRates(env.Policy.Params(), g.opt.LR); err != nil {
		return err
	}
	if len(g.opt.Freeze) > 0 {
		if _, err := phases.FrozenNames(env.Policy.Params(), g.opt.Freeze, g.opt.Compat); err != nil {
			return err
		}
	}
	if n := g.opt.OldPolicyHeads; n != nil {
		rebuilt, err := g.withHeads(env.Initial, *n)
		if err != nil {
			return err
		}
		rebuilt.Free()
	}
	if g.opt.Rollout != "offline" || g.checked {
		return nil
	}
	if err := g.checkGroups(); err != nil {
		return err
	}
	g.checked = true // the groups do not change
	return nil
}

// Begin takes the old and reference policies and makes the optimizer.
func (g *Phase) Begin(env *phases.Env, totalSteps int) error {
	if err := g.Check(env); err != nil {
		return err
	}
	g.env = env
	_, g.text = env.Policy.(selector.TokenPolicy)
	var err error
	if g.beta, err = control.NewKLController(g.opt.KL); err != nil {
		return err
	}
	if g.temp, err = control.NewPolicyTemperature(g.opt.Temperature); err != nil {
		return err
	}
	if err := g.freezePolicies(); err != nil {
		return err
	}
	if g.learn, err = phases.NewLearner(env.Policy.Params(), g.optim, g.opt.LR, g.sched, totalSteps); err != nil {
		return err
	}
	if err := g.learn.Freeze(g.opt.Freeze, g.opt.Compat); err != nil {
		return err
	}
	if g.opt.Compat && len(g.opt.Freeze) > 0 && env.LastGradient != nil {
		g.learn.Frozen.SetStale(env.LastGradient)
	}
	return nil
}

// maxSilent is the share of groups without a learning signal that a run may have.
const maxSilent = 0.95

// checkGroups counts the recorded candidates and refuses groups that can teach nothing.
func (g *Phase) checkGroups() error {
	const chunk = 1024
	signal, groups := 0, 0
	g.recorded = 0
	for queries := range selector.Chunks(g.src.Len(), chunk) {
		b := g.src.Recorded(queries)
		g.recorded += b.NumValid()
		_, stats := advantage.Compute(b.Rewards, b.Valid, b.B(), b.G, g.opt.Advantage)
		signal, groups = signal+stats.Signal, groups+stats.Groups-stats.Empty
	}
	if groups > 0 && g.recorded <= groups && !g.opt.Compat {
		return fmt.Errorf("each of the %d recorded groups has one candidate, which nothing compares with: record several a query, or take %s out of schedule", groups, g.name)
	}
	if silent := 1 - objective.Share(signal, groups); silent > maxSilent && !g.opt.Compat {
		return fmt.Errorf("%.4g %% of the %d recorded groups have no signal (equal rewards, or one candidate): choose another data.reward.mode or lower %s.advantage.precision", 100*silent, groups, g.name)
	}
	return nil
}

// BeginEpoch refreshes what belongs to the epoch's start.
func (g *Phase) BeginEpoch(int) error {
	g.showNext = true
	if g.opt.OldPolicy == "epoch_start" {
		g.refreshOld()
	}
	if g.opt.KL.Reference == "epoch_start" {
		g.reference.Params().CopyFrom(g.env.Policy.Params())
	}
	return nil
}

func (g *Phase) refreshOld() {
	g.old.Params().CopyFrom(g.env.Policy.Params())
	g.sinceOld = 0
}

// Step makes one GRPO update.
func (g *Phase) Step(_ context.Context, epoch, step, pass int, queries []int) (phases.Metrics, error) {
	if pass == 0 {
		if g.opt.OldPolicy == "every_n" && g.sinceOld >= g.opt.UpdateOldAfter {
			g.refreshOld()
		}
		if err := g.collect(epoch, step, queries); err != nil {
			return nil, err
		}
	}
	beta := g.beta.Beta()
	sums := g.newFindings(pass)
	g.learn.Zero()
	for from, to := range objective.Spans(g.hand.batch.B(), g.opt.MicroBatch) {
		g.accumulate(from, to, beta, sums)
	}
	m, err := g.learn.Step(sums.loss, step)
	if err != nil {
		return nil, err
	}
	g.measure(m, sums)
	kl := m["kl"].(float64) // nats per sequence
	m["kl_beta"] = beta
	if g.opt.Temperature.Enabled {
		m["policy_temperature"] = g.hand.temperature
	}
	g.hand.old, g.hand.ref = sums.old, sums.ref
	g.beta.Step(kl)
	g.temp.Step(kl)
	g.sinceOld++
	g.syncReference(step)
	return m, nil
}

// lossTemperature returns the temperature at which the batch in hand was sampled. Every log-probability of its loss
// is taken there: only then is the ratio an importance weight of its samples. Nobody knows a temperature of recorded
// groups.
func (g *Phase) lossTemperature() float64 {
	if g.opt.Rollout == "offline" {
		return g.hand.temperature
	}
	return g.opt.SampleTemp * g.hand.temperature
}

// accumulate adds the gradient of queries from … to-1 of the batch in hand, a part of the step's loss.
func (g *Phase) accumulate(from, to int, beta float64, sums *findings) {
	batch := g.hand.batch.Part(from, to) // [B, G, T], the curriculum's top k
	if batch.NumValid() == 0 {
		return // the step's divisors know; where nothing at all is left, the gradient is 0
	}
	defer torchx.Scope()()
	temperature := g.lossTemperature()
	ref := g.referenceView(batch, from, temperature) // no gradient
	bonus := g.opt.EntropyWeight > 0
	forward := selector.ForwardOptions{Temperature: temperature, Reference: ref.dist, Dist: bonus && !g.text, Entropy: bonus && g.text}
	out := g.env.Policy.Forward(batch, forward)                      // with gradient, dropout off
	logp := g.perRatio(out.LogP)                                     // [B, G], or [B, G, T] with ratio=token
	old, fresh := g.oldLogProbs(batch, from, temperature, logp, ref) // like logp, no gradient
	denominator := old
	if fresh {
		denominator = torchx.Detach(logp) // old, but for its last bits: the ratio is exactly 1
		if g.old == g.reference {
			ref.logp = denominator
		}
	}

	adv := g.advantages(logp, batch, from)           // [B, G] or [B, G, 1]
	weight, divisor := g.weights(logp, batch)        // like logp; the loss is Σ weight·term / divisor over all parts
	logRatio := g.logRatio(logp, denominator, batch) // [B, G], or [B, G, T] with one ratio a token
	ratio := torchx.Exp(clampTo(logRatio, g.opt.MaxLogRatio))
	low, high := g.opt.Clip.sides()
	ppo := surrogate(ratio, adv, weight, low, high, divisor)
	klTerms := g.kl(out, ref, logp, batch)             // like logp, nats, with gradient
	kl := objective.Weighted(klTerms, weight, divisor) // scalar
	loss := ppo
	if w := g.klWeight(beta); w != 0 {
		loss = torchx.Add(ppo, torchx.Scale(kl, w))
	}
	if bonus {
		loss = torchx.Sub(loss, torchx.Scale(g.entropyBonus(out, logp, batch), g.opt.EntropyWeight))
	}
	torchx.Backward(loss)
	sums.add(g, from, batch, found{loss: loss, ppo: ppo, kl: kl, klTerms: klTerms,
		logRatio: logRatio, logp: logp, old: old, ref: ref.logp, entropy: out.Entropy, fresh: fresh})
}

// klWeight is the factor of the KL in the loss.
func (g *Phase) klWeight(beta float64) float64 {
	if g.opt.Loss == "ppo_clip" {
		return 0
	}
	return beta
}

// EndEpoch moves β and the policy temperature by the epoch's mean KL and reports a β on its bound.
func (g *Phase) EndEpoch(int, phases.Metrics) (phases.Metrics, error) {
	g.beta.EndEpoch()
	g.temp.EndEpoch()
	beta, o := g.beta.Beta(), g.opt.KL
	moves := o.Controller != "fixed" && (beta > 0 || o.LiftZero)
	return phases.Metrics{"kl_beta_next": beta, "kl_beta_at_bound": moves && (beta <= o.BetaMin || beta >= o.BetaMax)}, nil
}

// Reference is the policy of the KL penalty.
func (g *Phase) Reference() selector.Policy { return g.reference.Policy }

// ReferenceName is that policy as grpo.kl.reference names it, or synced where it follows the policy.
func (g *Phase) ReferenceName() string {
	if g.opt.KL.SyncSteps != nil {
		return "synced"
	}
	return g.opt.KL.Reference
}
