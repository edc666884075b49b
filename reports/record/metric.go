package record

import (
	"cmp"
	"slices"
	"strings"
)

// Metric is one field of a metrics.jsonl row. Its name is the same in code, plots, TensorBoard and docs.
type Metric struct {
	Name string
	Unit string // "" for counts and pure numbers; text, list or flag of what is no number
	Help string
}

func (m Metric) Numeric() bool { return !slices.Contains([]string{"text", "list", "flag"}, m.Unit) }

// Metrics returns the known fields in the order in which rows carry them. Fields that are not listed
// follow in alphabetical order.
func Metrics() []Metric {
	return []Metric{
		{"event", "text", "what happened: a short name such as resume, early_stop, or a check of doctor.md: beta_at_bound"},
		{"severity", "text", "of an event: note, warning, stop (the run ends) or error"},
		{"message", "text", "of an event: one sentence with its number, cause and key to change"},
		{"key", "text", "of an event: configuration key to change; absent where it is the code or the data"},
		{"value", "", "of a finding (doctor.md): what was measured; events without it are no findings"},
		{"limit", "", "of a finding: what it was held against"},
		{"split", "text", "which queries were evaluated: val, or the name of another set"},
		{"policy", "text", "who chose or answered: init, random, similarity, majority (the most frequent training answer), recorded_order " +
			"(of the candidates in their file), best_beam (the best recorded beam of each query), oracle, reference (the target), best, " +
			"or the phase that ended"},
		{"kl_reference", "text", "of an eval or an epoch: the policy that kl and val_kl are measured against: init, phase_start, epoch_start " +
			"(grpo.kl.reference; for sft, rce, init and best always init), or synced (grpo.kl.sync_steps)"},
		{"reward", "", "of an eval: mean reward of the greedy selection or answer over the split"},
		{"accuracy", "", "of an eval: mean accuracy of the greedy selection or answer over the split"},
		{"recorded_reward", "", "of an eval without a reader: recorded reward that the policy expects among the recorded candidates of " +
			"a query, each drawn by its probability renormalised among them; baselines take their first"},
		{"top1_accuracy", "share", "of an eval without a reader: queries whose likeliest recorded candidate is the best, of those whose " +
			"rewards differ"},
		{"pair_accuracy", "share", "of an eval without a reader: pairs of recorded candidates with different rewards that the policy " +
			"puts in order, mean over queries"},
		{"rouge1", "", "of task=evaluate with metric=rouge: mean ROUGE-1 F1 over the texts"},
		{"rouge2", "", "the same of ROUGE-2"},
		{"rougeL", "", "the same of ROUGE-L"},
		{"rougeLsum", "", "the same of ROUGE-L by sentences (evaluate.sentences)"},
		{"reward_<term>", "", "mean of one term of the reward, by its name and before its weight: over the sampled completions of a " +
			"step, or of an eval over the greedy ones; also what a term counts beside its value: points_named, points_in_confusion, " +
			"points_on_object, judge_tokens (of the judge's prompts and answers, a completion)"},
		{"loss", "", "the loss that was differentiated"},
		{"grad_norm", "", "global norm of the gradient before clipping"},
		{"clip_factor", "", "what the gradient was multiplied by to have no more than optim.grad_clip_norm; absent without clipping"},
		{"moment_norm", "", "global norm of the optimizer's first moment after the step"},
		{"optimizer_steps", "", "steps of the phase's optimizer, by which its moments are corrected"},
		{"graph_share", "", "on a GPU: 1 where the step was launched as one CUDA graph; of an epoch the share; run.log says once why not"},
		{"frozen_grad_norm", "", "compat: norm of the stale gradient of frozen parameters, after clipping"},
		{"lr", "", "learning rate of the step"},
		{"lr_mm_projector", "", "learning rate of the merger, where optim.mm_projector_lr gives it its own"},
		{"lr_vision_tower", "", "learning rate of the vision tower, where optim.vision_tower_lr gives it its own"},
		{"temperature", "reward units", "RCE temperature τ of the step"},
		{"ppo_loss", "", "clipped surrogate part of the loss"},
		{"kl_loss", "nats", "β·KL, the other part of the loss, averaged as grpo.loss says"},
		{"kl", "nats per sequence", "KL between policy and reference policy; absent in steps that do not measure it (grpo.kl.measure_every)"},
		{"kl_per_token", "nats per token", "the same for each token of a completion (token policies)"},
		{"kl_beta", "", "KL coefficient β used in the step"},
		{"mean_ratio", "", "mean of new over old probability of the candidates, or of their tokens (grpo.ratio)"},
		{"clip_fraction", "share", "share of ratios outside the clip range"},
		{"clip_fraction_low", "share", "share of ratios whose gradient the lower side of the clip range stops: below it, with a " +
			"negative advantage"},
		{"clip_fraction_high", "share", "the same of its upper side: above it, with a positive advantage"},
		{"mean_advantage", "", "mean advantage of the candidates used"},
		{"std_advantage", "", "standard deviation of these advantages"},
		{"max_advantage", "", "largest absolute advantage"},
		{"entropy", "nats per step", "entropy of the policy over the pool or the vocabulary, mean over the scored steps of the candidates"},
		{"top_k", "", "candidates per query left by the curriculum"},
		{"items", "", "candidates in the step"},
		{"reader_calls", "", "candidates of the step that reader or rewards scored, copies counted; recorded ones cost none"},
		{"tokens", "", "scored tokens in the step (token policies)"},
		{"step_seconds", "s", "wall time of the step, data preparation included"},
		{"clamp_fraction", "share", "share of log-ratios cut at ±20, before they are exponentiated"},
		{"advantage_clipped", "share", "share of advantages clipped"},
		{"refresh_drift", "nats", "largest difference between the log-probabilities of the policy and of the old policy at the first " +
			"step after a refresh, when both have the same weights"},
		{"advantage_gain", "nats", "mean over the candidates used of advantage times the change of their log-probability since the old " +
			"policy; > 0: good candidates have become likelier"},
		{"ess_share", "share", "effective number of candidates under the RCE weights over the size of the group, of groups whose " +
			"rewards differ: 1 where the temperature is far above their spread"},
		{"score_spread", "reward units", "deviation of the scores that the RCE weights are a softmax of (n - 1), mean over groups whose " +
			"rewards differ"},
		{"groups", "", "groups of the step that have candidates"},
		{"group_size", "", "candidates of the largest group of the step, before the curriculum"},
		{"effective_sample_size", "candidates", "effective number of candidates under the RCE weights of a query"},
		{"signal_share", "share", "groups with a learning signal before the curriculum"},
		{"signal_share_top_k", "share", "groups with a learning signal after the curriculum"},
		{"constant_good_groups", "", "groups in which all rewards are equal and above the mean of the batch (above 0 where that is " +
			"all the same)"},
		{"constant_bad_groups", "", "the other groups in which all rewards are equal"},
		{"resampled_groups", "", "groups of other queries drawn for those without a signal (grpo.zero_variance=resample)"},
		{"mean_reward", "", "mean reward of the candidates, before the curriculum"},
		{"reward_std", "", "deviation of the rewards of a group (n - 1), mean over groups"},
		{"reward_<term>_std", "", "deviation of one term of the reward over the completions of a step (n)"},
		{"completion_length", "tokens", "mean length of the completions of a step, or of an eval of the greedy ones, the end token " +
			"included"},
		{"completion_length_min", "tokens", "length of the shortest"},
		{"completion_length_max", "tokens", "length of the longest"},
		{"truncated_share", "share", "completions cut at the length limit"},
		{"kept_mass", "share", "of the policy's distribution at the sampling temperature, what tokens were drawn from: the probability " +
			"that top-p and top-k keep (with a repetition penalty, the overlap of both distributions); mean over the sampled tokens"},
		{"sampler_gap", "nats", "median over the sampled tokens of the difference between the log-probability that a token was drawn " +
			"with and that of the old policy's forward pass, which enters the ratio: rounding, about 1e-7 in float32"},
		{"sampler_gap_max", "nats", "largest of these differences"},
		{"correction_share", "share", "of the weights of grpo.correction, those that were cut or masked"},
		{"policy_temperature", "", "temperature of the policy in GRPO (1: as trained)"},
		{"adv_hist", "list", "counts of advantages in equal bins over [-5, 5]"},
		{"kl_beta_next", "", "β of the next epoch"},
		{"kl_beta_at_bound", "flag", "true where β sits on a bound"},
		{"val_loss", "", "loss on the validation queries"},
		{"val_kl", "nats per sequence", "KL on the validation queries; absent with grpo.kl.measure_every=0"},
		{"val_advantage", "", "probability-weighted advantage on recorded validation groups; > 0 prefers good candidates"},
		{"val_reward", "", "mean reward of the greedy selection or answer on the validation queries"},
		{"val_accuracy", "", "mean accuracy of the greedy selection or answer on the validation queries"},
		{"val_recorded_reward", "", "recorded reward that the policy expects among the recorded candidates of the validation queries, " +
			"where nothing scores its selections"},
		{"val_top1_accuracy", "share", "validation queries whose likeliest recorded candidate is the best"},
		{"val_pair_accuracy", "share", "pairs of their recorded candidates in order"},
		{"val_paired_error", "", "paired standard error of the difference from the highest checkpoint before, in the metric that chooses " +
			"the best (checkpoint.best)"},
		{"val_reward_<term>", "", "mean of one term of the reward over the greedy completions of the validation queries"},
		{"val_completion_length", "tokens", "mean length of these"},
		{"val_truncated_share", "share", "those that were cut at the length limit"},
		{"checkpoint", "text", "weights of the epoch, relative to the run folder"},
	}
}

// MetricOrder sorts field names: known ones as in Metrics, then the others by name.
type MetricOrder map[string]int

func NewMetricOrder() MetricOrder {
	order := MetricOrder{}
	for i, m := range Metrics() {
		order[m.Name] = i
	}
	return order
}

func (o MetricOrder) Sort(names []string) {
	place := func(name string) int {
		if at, known := o[name]; known {
			return at
		}
		return len(o)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b)) })
}
