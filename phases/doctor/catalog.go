package doctor

// Check describes one check to people (docs/doctor.md).
type Check struct {
	Name  string
	Means string // what a finding says about the run
	Do    string // likely causes and what to change; PHASE stands for the phase's section
}

// Checks lists every check of the doctor, as the configuration names them, and nonfinite, which has no options.
func Checks() []Check {
	return []Check{
		{"no_signal", "nearly no group has rewards that differ: the gradient is noise, and the KL's",
			"a warm-up (sft, rce), larger groups (`PHASE.group_size`), rewards with partial credit (`data.reward.mode`, `rewards`)"},
		{"little_signal", "most groups have equal rewards: they cost as much as the others and teach nothing",
			"larger groups (`PHASE.group_size`), rewards with partial credit, other queries, `PHASE.zero_variance=resample`"},
		{"all_good_groups", "nearly every group is solved by all its candidates", "harder queries, or an end of the phase"},
		{"all_bad_groups", "nearly every group fails altogether", "a warm-up, larger groups (`PHASE.group_size`), rewards with partial credit"},
		{"ess_uniform", "RCE imitates good and bad candidates alike: τ is far above the spread of their scores, at the end of the schedule too",
			"lower `rce.temperature.start` and `end`, `rce.temperature.relative=true`, or rewards on a larger scale"},
		{"ess_collapsed", "RCE imitates one candidate of each query: τ is far below the spread of their scores",
			"raise `rce.temperature.start`, or use sft"},
		{"ratio_not_one", "policy and old policy have the same weights and disagree: dropout or other noise in the ratio, or an old policy " +
			"that was not refreshed", "usually code: a forward pass with dropout, a refresh that is missing"},
		{"ratio_stuck_at_one", "the old policy follows the policy (or the weights do not move): the clip bounds nothing",
			"usually code: a copy that shares its memory; else `PHASE.old_policy`"},
		{"ratio_clipped", "nearly all ratios lie outside the clip range: most of the loss has no gradient. Recorded groups with an old " +
			"policy from the phase's start get there after some epochs, healthy runs too", "refresh the old policy " +
			"(`PHASE.old_policy=epoch_start`), lower `PHASE.lr`, widen `PHASE.clip.epsilon`"},
		{"ratio_clamped", "log-ratios reach `PHASE.max_log_ratio`: the policy runs away from the old one. What else is found then has this " +
			"cause, and the report makes one finding of it", "lower `PHASE.lr` (a tenth), refresh the old policy more often"},
		{"kl_above_band", "the policy has left the reference far behind; or a warm-up had, before the phase began (`PHASE.kl.reference=init`)",
			"lower `PHASE.lr`, raise `PHASE.kl.beta`, widen the band; `PHASE.kl.reference=phase_start`"},
		{"kl_below_band", "the policy hardly moves", "raise `PHASE.lr`, lower `PHASE.kl.beta`, lower the band"},
		{"beta_at_bound", "β wants to leave its bounds: the KL is no longer controlled", "`PHASE.kl.beta_max`, `PHASE.kl.beta_min`, the " +
			"band, `PHASE.lr`"},
		{"beta_wrong_way", "β fell after a KL above the band, rose after one below it, or stood still",
			"usually code: a controller with its sides swapped, or one that is not told the KL"},
		{"kl_stuck_at_zero", "the reference follows the policy (or the weights do not move): nothing holds the policy",
			"usually code: a copy that shares its memory, an optimizer that does not step"},
		{"kl_not_zero", "policy and reference have the same weights and a KL: noise in the forward pass, or another reference than the one " +
			"that is configured", "usually code; `PHASE.kl.reference`"},
		{"kl_negative", "a KL that cannot be negative is", "usually code: log-probabilities of two distributions over different choices"},
		{"entropy_collapse", "the policy answers nearly the same each time. While the sampled reward rises this is success, and nothing is said",
			"lower `PHASE.lr`, raise `PHASE.kl.beta`, `PHASE.entropy_weight`"},
		{"all_truncated", "completions end at the length limit, not by themselves", "`generation.max_new_tokens` of the policy's section " +
			"(`vl`, `seq2seq`), sft on complete answers"},
		{"cut_counts_as_whole", "completions that were cut at the length limit count as complete",
			"usually code; the token that should end them"},
		{"sampling_cut", "completions are drawn from a part of the policy's distribution (top-p, top-k, a repetition penalty), and ratios " +
			"are those of the whole: tokens of the rest are never tried, and the gradient is that of another objective",
			"`generation.top_p` 1, `generation.top_k` 0 and `generation.repetition_penalty` 1 in the policy's section (`vl`, `seq2seq`); " +
				"`PHASE.sample_temperature` sharpens without a bias"},
		{"gradient_spike", "one batch weighs as much as many others", "its rewards, `PHASE.lr`, `optim.grad_clip_norm`"},
		{"zero_gradient", "there is a signal and no gradient", "usually code: detached log-probabilities, everything frozen"},
		{"zero_lr", "a step changed nothing", "`PHASE.lr`, `lr_schedule`"},
		{"clip_ignored", "the gradient is not clipped as configured", "usually code: a factor that is left out, or computed from another norm"},
		{"moments_reset", "Adam forgets: every step is a first step", "usually code: moments that are zeroed, an optimizer that is made anew"},
		{"lr_off_schedule", "the learning rate is not the configured one", "usually code: a step counter that starts anew or a total that " +
			"is wrong"},
		{"tau_off_schedule", "RCE's τ is not the configured one", "usually code"},
		{"top_k_off_curriculum", "the curriculum does not act, or does not end", "usually code: epochs counted from 0"},
		{"advantage_beyond_clip", "the clip of the advantages does not act", "usually code"},
		{"advantage_not_centred", "advantages are not relative to their group", "usually code: rewards taken for advantages"},
		{"advantage_signs", "candidates of one sign are dropped", "usually code; `PHASE.advantage.negative_weight`"},
		{"surrogate_differs", "the loss has other advantages than the rows, or leaves some out", "usually code"},
		{"loss_parts_differ", "the loss is not ppo_loss + kl_loss, or kl_loss not β·KL: what is optimised is not what is reported",
			"usually code: a term that is left out or scaled twice"},
		{"loss_diverges", "imitation gets worse", "lower `PHASE.lr`; the sign of the loss"},
		{"objective_falls", "good candidates become less likely: the run optimises the opposite",
			"the sign of loss, ratio or advantage; a `PHASE.lr` that is far too high"},
		{"batch_repeats", "every step sees the same queries", "usually code: the order of the data, the place of a batch in it"},
		{"queries_missing", "part of the data is never seen, or seen twice", "usually code: the order of the data, the place of a batch in it"},
		{"order_repeats", "every epoch has the same batches", "usually code: a shuffle without the epoch in its seed"},
		{"validation_misreported", "what is reported, and chosen by, is not what was measured", "usually code"},
		{"validation_diverges", "what the policy earns on validation falls (and in imitation its loss rises) while training improves: what is " +
			"learned does not carry over", "fewer epochs, `checkpoint.patience_epochs`, more data, a " +
			"smaller `PHASE.lr`"},
		{"validation_falls", "training loses what an earlier epoch or phase could do", "lower `PHASE.lr`, `checkpoint.patience_epochs`; the " +
			"best checkpoint may hold the earlier epoch"},
		{"validation_unchanged", "training does not reach what is validated", "usually code: validation of other weights, an optimizer that " +
			"does not step"},
		{"worse_than_start", "training loses what the initial policy could do", "lower `PHASE.lr`; the sign and scale of the rewards"},
		{"throughput_drop", "a part of the phase was much slower than the rest (run.log, summary.json and the report only: it depends on " +
			"the machine)", "other work on the machine, memory that ran short"},
		{"nonfinite", "a reward, the loss or the gradient is NaN or infinite: the run ends with the weights as they were, and the finding " +
			"names the query and candidate, or the first operation (made again with everything followed) whose result was not finite",
			"the rewards, `PHASE.lr`"},
	}
}
