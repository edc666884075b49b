package grpo

import (
	"cmp"
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/control"
	"fulcrum/selector"
)

// Options configures group-relative policy optimisation (config sections grpo and grpo_online).
type Options struct {
	phases.Training

	// offline: recorded candidates (data.records, else the beams); online: sampled from the policy (grpo: the old
	// one), scored by reader or rewards
	Rollout string `koanf:"rollout"`
	// sampled candidates per query (online)
	GroupSize int `koanf:"group_size" range:"[2,10000]" also:"num_generations,num_rollouts,rollout_n,num_samples" when:"rollout=online"`
	// temperature of sampling (online), times the policy's own; grpo takes log-probabilities at it too, but for
	// recorded groups
	SampleTemp float64 `koanf:"sample_temperature" range:"(0,inf)" also:"sampling_temperature,rollout_temperature" when:"rollout=online"`
	// optimizer steps on each batch before the next (μ of GRPO)
	NumIterations int `koanf:"num_iterations" range:"[1,inf)" also:"ppo_epochs,num_ppo_epochs,inner_epochs,mu"`
	// probability ratios and KL of whole sequences, or of each step
	Ratio string `koanf:"ratio" enum:"sequence,token"`
	// grpo: clipped surrogate + beta·KL, a mean over each candidate's tokens, then over candidates; bnpo, dapo: over
	// all tokens; dr_grpo: summed over tokens, divided by candidates and longest length; gspo: grpo with one
	// length-normalised ratio a candidate; ppo_clip: the surrogate alone
	Loss string `koanf:"loss" also:"loss_type"`
	// PPO's ratio clip
	Clip ClipOptions `koanf:"clip"`
	// the sampler differs from the policy
	Correction CorrectionOptions `koanf:"correction" when:"rollout=online"`
	// completions cut at the length limit stay in their group's baseline but not in the loss (overlong filtering, DAPO)
	MaskTruncated bool `koanf:"mask_truncated" also:"mask_truncated_completions"`
	// groups with equal rewards: keep (KL acts on them), filter (average the loss over the others), resample (draw
	// others until the batch is full)
	ZeroVariance string `koanf:"zero_variance"`
	// rounds of drawing that fill a batch (zero_variance=resample); it stays short where they do not. Three fill a
	// batch where one group in four is useful
	MaxResamples int `koanf:"max_resamples" range:"[1,100]" constant:"true"`
	// group-relative advantages
	Advantage advantage.Options `koanf:"advantage"`
	// how many of a group's best candidates count
	Curriculum advantage.CurriculumOptions `koanf:"curriculum"`
	// KL penalty against the reference policy
	KL control.KLOptions `koanf:"kl"`
	// KL-driven temperature of the policy: sharpened while KL is low, softened while it is high
	Temperature control.PolicyTemperatureOptions `koanf:"temperature" when:".enabled"`
	// parameters whose name contains one of these stay as they are
	Freeze []string `koanf:"freeze"`
	// policy in the ratio's denominator, which also samples: that of the start of run, phase or epoch, of every
	// update_old_after steps, or of the batch's first pass
	OldPolicy string `koanf:"old_policy"`
	// attention heads of the old policy (old_policy=init); null = as the policy
	OldPolicyHeads *int `koanf:"old_policy_heads" range:"[1,inf)" when:"old_policy=init"`
	// optimizer steps between refreshes (old_policy=every_n), at batches only; up to num_iterations: every batch
	UpdateOldAfter int `koanf:"update_old_after" range:"[1,inf)" when:"old_policy=every_n"`
	// log-ratios are cut to plus or minus this before they are exponentiated: e²⁰ is further than any ratio that a clip range lets
	// count, and far from overflow; the Python reference never cuts
	MaxLogRatio float64 `koanf:"max_log_ratio" range:"(0,inf]" constant:"true"`
	// bonus for entropy, in loss units per nat
	EntropyWeight float64 `koanf:"entropy_weight" range:"[0,inf)" also:"entropy_coef,ent_coef,entropy_coeff,entropy_bonus"`
	// sampled completions kept in completions.jsonl (token policies)
	Completions phases.CompletionOptions `koanf:"completions"`

	Hooks Hooks `koanf:"-"`
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
	return Options{Training: phases.Training{Epochs: 5, LR: 1e-4}, Rollout: "offline", GroupSize: 8, SampleTemp: 1,
		NumIterations: 1, Ratio: "sequence", Loss: "grpo",
		Clip: ClipOptions{Epsilon: 0.2}, Correction: CorrectionOptions{Kind: "none", Level: "token", Clip: 2},
		ZeroVariance: "keep", MaxResamples: 3,
		Advantage: advantage.DefaultOptions(), Curriculum: advantage.DefaultCurriculumOptions(),
		KL: control.DefaultKLOptions(), Temperature: control.DefaultPolicyTemperatureOptions(),
		OldPolicy: "phase_start", UpdateOldAfter: 1000, MaxLogRatio: 20, Completions: phases.DefaultCompletionOptions()}
}

// Hooks replace parts of the algorithm. Only a program that reproduces another implementation sets them.
type Hooks struct {
	// Advantages chooses the candidates of an epoch from whole groups and returns their advantages and statistics;
	// nil: by curriculum and advantage.
	Advantages func(groups *selector.Batch, o Options, epoch int) (advantage.Selection, []float64, advantage.Stats)
	// AnySignal trains on recorded groups even where nearly all have equal rewards.
	AnySignal bool
	// CacheLikeSteps caches log-probabilities in batches of a step's size: their last bits are then those of a step.
	CacheLikeSteps bool
}

// The choices of grpo.loss, grpo.kl.estimator, grpo.old_policy, grpo.rollout and grpo.zero_variance are tables: a
// function lists the entries of each, in the order of the messages. Names, help and checks follow from the entry.

// Choices returns the names in each table, for the schema and the documentation.
func (Options) Choices() map[string][]string {
	return map[string][]string{"loss": list.Map(Losses(), Loss.named), "kl.estimator": list.Map(Estimators(), Estimator.named),
		"old_policy": list.Map(OldPolicies(), OldPolicy.named), "rollout": list.Map(Rollouts(), Rollout.named),
		"zero_variance": list.Map(Silences(), Silence.named)}
}

// chosen holds the table entries named by the options.
type chosen struct {
	loss    Loss
	kl      Estimator
	old     OldPolicy
	rollout Rollout
	silence Silence
}

func (o Options) choose() (c chosen, err error) {
	var errs [5]error
	c.loss, errs[0] = option.Choose("loss", o.Loss, Losses(), Loss.named)
	c.kl, errs[1] = option.Choose("kl.estimator", o.KL.Estimator, Estimators(), Estimator.named)
	c.old, errs[2] = option.Choose("old_policy", o.OldPolicy, OldPolicies(), OldPolicy.named)
	c.rollout, errs[3] = option.Choose("rollout", o.Rollout, Rollouts(), Rollout.named)
	c.silence, errs[4] = option.Choose("zero_variance", o.ZeroVariance, Silences(), Silence.named)
	return c, cmp.Or(errs[:]...)
}

func (o Options) Validate() error {
	c, err := o.choose()
	if err != nil {
		return err
	}
	if h := o.Clip.EpsilonHigh; h != nil && *h < o.Clip.Epsilon {
		return option.Errorf("clip.epsilon_high", "want at least epsilon = %g, got %g", o.Clip.Epsilon, *h)
	}
	if c.rollout.Samples && c.old.Constant {
		return option.Errorf("old_policy", "want batch, every_n or epoch_start with rollout=%s "+
			"(the old policy samples the groups and has to follow), got %s", o.Rollout, o.OldPolicy)
	}
	if o.OldPolicyHeads != nil && c.old.From != ofRun {
		return option.Errorf("old_policy_heads", "want null, or old_policy=init: only the run's initial policy is rebuilt, got old_policy=%s",
			o.OldPolicy)
	}
	if o.Ratio == "sequence" && c.loss.EveryToken {
		return option.Errorf("loss", "%s averages over tokens: want ratio=token beside it, or a loss that averages over candidates", o.Loss)
	}
	if n := o.KL.MeasureEvery; n != 1 && o.Temperature.Enabled {
		return option.Errorf("kl.measure_every", "%d leaves steps without a KL, and temperature.enabled goes by it: want 1, or "+
			"temperature.enabled=false", n)
	}
	if err := o.validCorrection(c.rollout.Samples); err != nil {
		return err
	}
	if c.silence.Resamples && !c.rollout.Samples {
		return option.Errorf("zero_variance", "want keep or filter with rollout=%s: there are no other groups than the recorded ones", o.Rollout)
	}
	return nil
}

// ValidateTokens checks the options of a token policy: the exact KL over a vocabulary has no gradient, and there
// are no heads to choose.
func (o Options) ValidateTokens() error {
	if c, err := o.choose(); err != nil {
		return err
	} else if c.kl.Sampled == nil {
		return option.Errorf("kl.estimator", "want k1, k2 or k3 with a token policy: the exact KL over a vocabulary has no gradient here")
	}
	return option.Want(o.OldPolicyHeads == nil, "old_policy_heads", "want null with a token policy")
}

// Check returns an error where the options do not suit the policy, or where the recorded groups carry no signal.
func (g *Phase) Check(env *phases.Env) (err error) {
	if g.chosen, err = g.opt.choose(); err != nil {
		return fmt.Errorf("%s.%w", g.name, err)
	}
	if _, text := env.Policy.(selector.TokenPolicy); text {
		if err := g.opt.ValidateTokens(); err != nil {
			return fmt.Errorf("%s.%w", g.name, err)
		}
	} else if g.opt.Correction.on() {
		return fmt.Errorf("%s.correction.kind=%s: want none: this policy's selections are sampled by the pass that is trained", g.name,
			g.opt.Correction.Kind)
	}
	if g.beta, err = control.NewKLController(g.opt.KL); err != nil {
		return err
	}
	if g.temp, err = control.NewPolicyTemperature(g.opt.Temperature); err != nil {
		return err
	}
	if err := g.optim.Check(env.Policy.Params(), g.opt.LR, g.opt.Freeze); err != nil {
		return err
	}
	if g.opt.OldPolicyHeads != nil {
		rebuilt, err := g.rebuilt(env)
		if err != nil {
			return err
		}
		rebuilt.Free()
	}
	if scorer, ok := g.src.(selector.Scorer); g.opt.Advantage.Anchored() && !(ok && scorer.CanScore()) {
		return fmt.Errorf("%s.advantage.method=%s: %s has no reward function to score the reference's own selections", g.name,
			g.opt.Advantage.Method, g.src.Name())
	}
	if g.chosen.rollout.Samples || g.checked {
		return nil
	}
	if err := g.checkGroups(); err != nil {
		return err
	}
	g.checked = true // the groups do not change
	return nil
}

// maxSilent is the largest share of groups without a learning signal that a run accepts.
const maxSilent = 0.95

// checkGroups counts the recorded candidates and refuses data whose groups carry no signal.
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
	if g.opt.Hooks.AnySignal {
		return nil
	}
	if groups > 0 && g.recorded <= groups {
		return fmt.Errorf("each of the %d recorded groups has one candidate, and GRPO compares candidates: record several for each query, or "+
			"take %s out of schedule", groups, g.name)
	}
	if silent := 1 - objective.Share(signal, groups); silent > maxSilent {
		return fmt.Errorf("%.4g %% of the %d recorded groups have no signal (equal rewards, or one candidate): choose another "+
			"data.reward.mode or lower %s.advantage.precision", 100*silent, groups, g.name)
	}
	return nil
}

func (g *Phase) Expected() doctor.Limits {
	o := g.opt
	lim := g.optim.Expected(o.Training, g.sched)
	low, high := o.Clip.sides()
	p := &doctor.PolicyLoss{
		ClipLow: low, ClipHigh: high, AdvantageClip: o.Advantage.Clip,
		Centred:        o.Advantage.Centred() && o.Hooks.Advantages == nil,
		Curriculum:     o.Curriculum,
		PerToken:       o.Ratio == "token",
		MaskTruncated:  o.MaskTruncated,
		OldPolicy:      o.OldPolicy,
		OldIsFresh:     func(e doctor.Limits, step int) bool { return g.chosen.old.Fresh(o, e, step) },
		SumOfParts:     o.Hooks.Advantages == nil || o.EntropyWeight == 0,
		EntropyWeight:  o.EntropyWeight,
		Surrogate:      o.Ratio == "sequence" && !o.MaskTruncated && o.Hooks.Advantages == nil,
		KLPerCandidate: o.Ratio == "sequence" && !o.MaskTruncated && !g.chosen.loss.NoKL,
		KL:             doctor.KL{KLOptions: o.KL, NonNegative: !g.chosen.kl.Signed},
	}
	if o.Hooks.Advantages == nil {
		p.Advantage = o.Advantage
	}
	if o.KL.Beta == 0 && !o.KL.LiftZero { // beta stays 0
		p.KL.Controller = "fixed"
	}
	if o.Correction.on() {
		p.Surrogate = false // its terms have weights
	} else {
		p.Mean = g.chosen.loss.Over
	}
	lim.Policy = p
	return lim
}
