package doctor

import "fmt"

// Check looks at the rows of a run for one thing that goes wrong. docs/doctor.md says of each what a finding means and what to do.
type Check struct {
	Name     string
	Severity Severity // of its finding
	Limit    float64  // what a number of the rows is held against; 0 where nothing is
	Steps    int      // that it looks back over, or that must agree in a row, before it speaks; 0: one is enough

	step, epoch func(*Doctor, Check, row) // look at every step's row, at every finished epoch's; either may be nil
	end         func(*Doctor, Check)      // looks at a phase that is over; may be nil
}

// Checks lists every check of the doctor but nonfinite, which always stops a run. They look at a row in this order.
func Checks() []Check {
	return []Check{
		// Fewer than one group in twenty: what three groups of a batch of 64 say is noise; 20 steps look at enough of them.
		{Name: "no_signal", Severity: Stop, Limit: 0.05, Steps: 20, step: (*Doctor).noSignal},
		// Fewer than one group in ten is left to learn from: worth knowing, nothing is wrong.
		{Name: "all_good_groups", Severity: Note, Limit: 0.9, Steps: 20, step: (*Doctor).allGoodGroups},
		// As all_good_groups: worth knowing.
		{Name: "all_bad_groups", Severity: Note, Limit: 0.9, Steps: 20, step: (*Doctor).allBadGroups},
		// Weights that differ by less than a fifth from their mean imitate all candidates alike.
		{Name: "ess_uniform", Severity: Warning, Limit: 0.97, Steps: 10, step: (*Doctor).essUniform},
		// The best candidate then has over 97 % of the weight.
		{Name: "ess_collapsed", Severity: Warning, Limit: 1.05, Steps: 10, step: (*Doctor).essCollapsed},
		// Two repetitions in a row, as one may be chance where queries are few.
		{Name: "batch_repeats", Severity: Warning, Steps: 2, step: (*Doctor).batchRepeats},
		// Nats: sums of float32 are off by 1e-5, dropout by 0.1; 16-bit models have a hundred times that (Limits.rounding).
		{Name: "ratio_not_one", Severity: Stop, Limit: 1e-3, step: (*Doctor).ratioNotOne},
		// The first rates of a warm-up may move nothing that float32 sees; those of ten steps do.
		{Name: "ratio_stuck_at_one", Severity: Warning, Steps: 10, step: (*Doctor).ratioStuckAtOne},
		// A note: recorded groups with an old policy of the phase's start get near it in healthy runs.
		{Name: "ratio_clipped", Severity: Note, Limit: 0.95, Steps: 10, step: (*Doctor).ratioClipped},
		// Max_log_ratio is far out: one ratio in a hundred there is no tail of a policy that is near.
		{Name: "ratio_clamped", Severity: Warning, Limit: 0.01, Steps: 10, step: (*Doctor).ratioClamped},
		// Standard errors: by chance once in 30,000 windows.
		{Name: "objective_falls", Severity: Warning, Limit: 4, Steps: 10, step: (*Doctor).objectiveFalls},
		// Times the upper end of the band: far beyond what a controller swings.
		{Name: "kl_above_band", Severity: Warning, Limit: 10, Steps: 10, step: (*Doctor).klAboveBand},
		// Times the lower end; the KL begins at 0 and a warm-up holds it there, so 50 steps.
		{Name: "kl_below_band", Severity: Note, Limit: 0.1, Steps: 50, step: (*Doctor).klBelowBand},
		// Β may touch a bound on its way: ten steps are none.
		{Name: "beta_at_bound", Severity: Warning, Steps: 10, step: (*Doctor).betaAtBound},
		{Name: "beta_wrong_way", Severity: Warning, step: (*Doctor).betaWrongWay, epoch: (*Doctor).betaWrongWayEpoch},
		// As ratio_stuck_at_one.
		{Name: "kl_stuck_at_zero", Severity: Warning, Steps: 10, step: (*Doctor).klStuckAtZero},
		// Nats: as ratio_not_one.
		{Name: "kl_not_zero", Severity: Warning, Limit: 1e-3, step: (*Doctor).klNotZero},
		// Times: batches differ less, and a policy that is its own reference has a KL of rounding errors. Five steps tell how they differ.
		{Name: "reference_lost", Severity: Warning, Limit: 10, Steps: 5, step: (*Doctor).referenceLost},
		// Nats: what the rounding of float32 may take from a KL near 0.
		{Name: "kl_negative", Severity: Warning, Limit: 1e-4, step: (*Doctor).klNegative},
		// Of the first steps': far below what a policy loses by learning.
		{Name: "entropy_collapse", Severity: Warning, Limit: 0.1, Steps: 10, step: (*Doctor).entropyCollapse},
		// Fewer than one answer in twenty ends by itself.
		{Name: "all_truncated", Severity: Warning, Limit: 0.95, Steps: 10, step: (*Doctor).allTruncated},
		// At 0.98 a sequence of 50 tokens has a weight that is off by a factor of e.
		{Name: "sampling_cut", Severity: Warning, Limit: 0.98, Steps: 10, step: (*Doctor).samplingCut},
		// A sampler that differs by rounding is far from any sensible limit.
		{Name: "correction_bites", Severity: Warning, Limit: 0.05, Steps: 10, step: (*Doctor).correctionBites},
		// Times the median, over steps that hide a trend of the phase.
		{Name: "gradient_spike", Severity: Note, Limit: 10, Steps: 20, step: (*Doctor).gradientSpike},
		// Below what float32 rounds a gradient to; one batch may cancel, three in a row do not.
		{Name: "zero_gradient", Severity: Warning, Limit: 1e-7, Steps: 3, step: (*Doctor).zeroGradient},
		{Name: "zero_lr", Severity: Warning, step: (*Doctor).zeroLR},
		// Of the parts: sums of float32 are nearer.
		{Name: "loss_parts_differ", Severity: Warning, Limit: 1e-3, step: (*Doctor).lossPartsDiffer},
		// Times the first steps': beyond the noise of ten batches.
		{Name: "loss_diverges", Severity: Warning, Limit: 2, Steps: 10, step: (*Doctor).lossDiverges},
		{Name: "lr_off_schedule", Severity: Warning, step: (*Doctor).lrOffSchedule},
		{Name: "tau_off_schedule", Severity: Warning, step: (*Doctor).tauOffSchedule},
		{Name: "top_k_off_curriculum", Severity: Warning, step: (*Doctor).topKOffCurriculum},
		// Advantages are of size 1: means of float32 are nearer.
		{Name: "top_k_not_best", Severity: Stop, Limit: 0.01, step: (*Doctor).topKNotBest},
		{Name: "advantage_beyond_clip", Severity: Warning, step: (*Doctor).advantageBeyondClip},
		// Advantages are of size 1: means of float32 are nearer.
		{Name: "advantage_not_centred", Severity: Warning, Limit: 0.01, step: (*Doctor).advantageNotCentred},
		// Four fifths of the work teach nothing.
		{Name: "little_signal", Severity: Warning, Limit: 0.2, Steps: 20, step: (*Doctor).littleSignal},
		{Name: "advantage_signs", Severity: Warning, step: (*Doctor).advantageSigns},
		// Of 1 or the surrogate: means of float32 are nearer.
		{Name: "surrogate_differs", Severity: Warning, Limit: 1e-3, step: (*Doctor).surrogateDiffers},
		{Name: "clip_ignored", Severity: Warning, step: (*Doctor).clipIgnored},
		{Name: "moments_reset", Severity: Warning, step: (*Doctor).momentsReset},
		// Of the longest: lengths of answers that end by themselves spread more than that.
		{Name: "cut_counts_as_whole", Severity: Warning, Limit: 0.98, Steps: 5, step: (*Doctor).cutCountsAsWhole},
		{Name: "queries_missing", Severity: Warning, epoch: (*Doctor).queriesMissing},
		{Name: "order_repeats", Severity: Warning, epoch: (*Doctor).orderRepeats},
		// Epochs in a row: one may be noise.
		{Name: "validation_diverges", Severity: Note, Limit: 2, epoch: (*Doctor).validationDiverges},
		{Name: "validation_unchanged", Severity: Warning, epoch: (*Doctor).validationUnchanged},
		// Of the initial policy's reward, and beyond the noise of the queries.
		{Name: "worse_than_start", Severity: Warning, Limit: 0.2, epoch: (*Doctor).worseThanStart},
		// Of the best epoch's reward, and beyond the noise of the queries.
		{Name: "validation_falls", Severity: Warning, Limit: 0.3, epoch: (*Doctor).validationFalls},
		{Name: "validation_misreported", Severity: Warning, epoch: (*Doctor).validationMisreported},
		// Most of the ratios, in epochs whose KL is above its band. A note: recorded groups of OK-VQA come there after sft.
		{Name: "bounds_exceeded", Severity: Note, Limit: mostOutside, epoch: (*Doctor).bothBounds},
		// Of the way to the oracle: without training the selector is similarity, or random.
		{Name: "untrained_ahead", Severity: Warning, Limit: 0.1, step: (*Doctor).untrainedAhead},
		// Of the way to the oracle: honest policies close 5 to 13 % of it on OK-VQA and up to 30 % on the built-in data.
		{Name: "oracle_gap_closed", Severity: Warning, Limit: 0.75, epoch: (*Doctor).gapClosed},
		// Of the same way: rewards that say nothing teach the order of a pool at most, which similarity has.
		{Name: "placebo_gains", Severity: Warning, Limit: 0.1, epoch: (*Doctor).placeboGains},
		{Name: "epochs_missing", Severity: Warning, end: (*Doctor).epochsMissing},
		// Standard errors of the paired difference: one epoch in forty is above by chance.
		{Name: "nothing_added", Severity: Note, Limit: 2, end: (*Doctor).nothingAdded},
		// Times the typical step: what shares a machine takes less.
		{Name: throughput, Severity: Note, Limit: 3},
	}
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

func ifThen(is bool, then, otherwise string) string {
	if is {
		return then
	}
	return otherwise
}
