package preflight

import (
	"reflect"

	"fulcrum/beamdata/audit"
	"fulcrum/phases/doctor"
)

// Options configures the preflight (config section preflight).
type Options struct {
	// look at the data, and try every phase on clones, before a fresh run's first step
	Enabled bool `koanf:"enabled"`
	// queries of the batch on which clones are tried; fewer where a model is large
	Queries int `koanf:"queries" range:"[2,1024]"`
	// optimizer steps after which every trained tensor has moved
	Steps int `koanf:"steps" range:"[2,100]"`

	// largest share of a set's queries that repeat the content of another; a repeated id is always a finding
	DuplicateQueries doctor.Limit `koanf:"duplicate_queries" default:"warning 0.1"`
	// largest share of validation or held-out queries whose content is trained on; a shared id is always a
	// finding
	SplitLeak doctor.Limit `koanf:"split_leak" default:"warning 0.02"`
	// largest share of queries that are their own candidates
	QueryInOwnPool doctor.Limit `koanf:"query_in_own_pool" default:"warning 0.02"`
	// largest share of recorded groups with equal rewards
	ConstantRewards doctor.Limit `koanf:"constant_rewards" default:"warning 0.9"`
	// largest share of recorded groups whose rewards differ by no more than advantage.precision
	SubprecisionRewards doctor.Limit `koanf:"subprecision_rewards" default:"warning 0.5"`
	// largest share of recorded groups with several best candidates
	ScoreTies doctor.Limit `koanf:"score_ties" default:"note 0.9"`
	// largest share of recorded groups with fewer than two candidates (grpo)
	SmallGroups doctor.Limit `koanf:"small_groups" default:"warning 0.5"`
	// recorded and sampled candidates have finite rewards
	NonfiniteRewards doctor.Switch `koanf:"nonfinite_rewards" default:"stop"`
	// largest share of recorded rewards that the reader contradicts
	RecordReaderMismatch doctor.Limit `koanf:"record_reader_mismatch" default:"warning 0.01"`
	// standard errors by which queries are nearer to their own pools than to those of others
	PoolUnlikeQuery doctor.Limit `koanf:"pool_unlike_query" default:"warning 3"`
	// largest share of the candidates of a pool whose embedding another one there has
	IdenticalCandidates doctor.Limit `koanf:"identical_candidates" default:"warning 0.1"`
	// largest share of the samples with pictures that show the same ones
	SharedPictures doctor.Limit `koanf:"shared_pictures" default:"warning 0.5"`
	// largest share of recorded groups that hold the same candidate under different rewards
	ContradictoryRewards doctor.Limit `koanf:"contradictory_rewards" default:"warning 0.5"`

	// largest share of the queries that have the very same row of the embedding table
	BlankRows doctor.Limit `koanf:"blank_rows" default:"warning 0.05"`
	// how many times as far apart rewards of training may lie as those of validation or held-out queries, or the reverse, in other files
	RewardScales doctor.Limit `koanf:"reward_scales" default:"warning 10"`
	// largest share of recorded groups that list their candidates from the worst to the best
	WorstFirst doctor.Limit `koanf:"worst_first" default:"warning 0.9"`
	// largest share of recorded candidates whose vqa_gt_prob, vqa_acc_score or vqa_correct lies outside [0, 1]
	ScoresOutside doctor.Limit `koanf:"scores_outside" default:"warning 0.01"`

	// a step of the phase ends without an error
	StepFailed doctor.Switch `koanf:"step_failed" default:"stop"`
	// the log-probabilities have a gradient to every trained tensor
	GradientMissing doctor.Switch `koanf:"gradient_missing" default:"stop"`
	// every trained tensor moves within the steps
	ParametersDoNotMove doctor.Switch `koanf:"parameters_do_not_move" default:"stop"`
	// frozen tensors and the reference policy stay as they are
	FrozenMove doctor.Switch `koanf:"frozen_move" default:"stop"`
	// the ratio of the policy to itself is exactly 1
	RatioNotOne doctor.Switch `koanf:"ratio_not_one" default:"stop"`
	// largest difference of a log-probability with and without gradient, in nats
	GradNogradDiffer doctor.Limit `koanf:"grad_nograd_differ" default:"stop 1e-4"`
	// largest difference of a log-probability between two evaluations, in nats
	ForwardNotDeterminist doctor.Limit `koanf:"forward_not_deterministic" default:"stop 1e-5"`
	// largest difference of a log-probability alone and in a batch of others, in nats
	BatchChangesOutput doctor.Limit `koanf:"batch_changes_output" default:"warning 1e-3"`
	// largest relative difference of loss and gradient norm with padding added to the batch
	PaddingChangesLoss doctor.Limit `koanf:"padding_changes_loss" default:"warning 1e-3"`
	// largest relative difference of the gradient norm between two steps from the same weights
	GradientsAccumulate doctor.Limit `koanf:"gradients_accumulate" default:"stop 1e-2"`
	// a step makes the better candidates of its batch likelier
	ObjectiveNotImproved doctor.Switch `koanf:"objective_not_improved" default:"warning"`
	// trained weights that move change the log-probabilities
	WeightsIgnored doctor.Switch `koanf:"weights_ignored" default:"stop"`
	// how far the gradient of the first step may be from that of its candidates' own rewards, as a share of
	// what sets these apart
	CreditMisplaced doctor.Limit `koanf:"credit_misplaced" default:"stop 0.2"`
	// a gradient longer than optim.grad_clip_norm reaches the optimizer clipped
	ClipIgnored doctor.Switch `koanf:"clip_ignored" default:"warning"`
	// the optimizer's moments are those of its steps so far, by optim.betas
	MomentsDiffer doctor.Switch `koanf:"moments_differ" default:"stop"`
	// the first step moves the weights by the learning rate
	StepSize doctor.Switch `koanf:"step_size" default:"warning"`
	// least change of the log-probabilities of a batch's candidates by all steps of the schedule, in nats
	TooFewSteps doctor.Limit `koanf:"too_few_steps" default:"warning 0.5"`
	// largest change of the log-probabilities of a batch's candidates by one step, in nats
	StepTooLarge doctor.Limit `koanf:"step_too_large" default:"warning 50"`
	// standard errors by which sampled candidates may be likelier or less likely than draws at the configured
	// temperature
	SamplingDiffers doctor.Limit `koanf:"sampling_differs" default:"warning 6"`
	// steps, queries and candidates have random numbers of their own
	NoiseRepeats doctor.Switch `koanf:"noise_repeats" default:"warning"`
	// sampled completions without an end count as cut
	TruncationUnmarked doctor.Switch `koanf:"truncation_unmarked" default:"warning"`

	// recorded candidates reach the phases with the steps and rewards that stand in the data, alone and in a
	// batch
	RecordedDiffer doctor.Switch `koanf:"recorded_differ" default:"stop"`
	// candidates earn in a batch, and where they are sampled, what each earns alone
	ScoresDiffer doctor.Switch `koanf:"scores_differ" default:"stop"`
	// validation reports what the policy's answers earn one by one
	ValidationDiffers doctor.Switch `koanf:"validation_differs" default:"stop"`
	// largest share of recorded candidates that are others after decoding and encoding
	RoundTrip doctor.Limit `koanf:"round_trip" default:"warning 0.1"`

	// least change of a log-probability when the image is another or blank, in nats
	ImagesIgnored doctor.Limit `koanf:"images_ignored" default:"warning 1e-6"`
	// least change of a log-probability when the prompt's text is another, in nats
	TextIgnored doctor.Limit `koanf:"text_ignored" default:"warning 1e-6"`
	// standard errors by which answers are likelier with their own images than with others (not from scratch)
	ImagesDoNotHelp doctor.Limit `koanf:"images_do_not_help" default:"warning 2"`
	// loaded adapters change the log-probabilities
	LoRAIgnored doctor.Switch `koanf:"lora_ignored" default:"warning"`
	// every tensor of vl.adapter or seq2seq.adapter stands in the model as it is in the file
	AdapterKeys doctor.Switch `koanf:"adapter_keys" default:"stop"`

	// largest share of the free memory that a step with the largest shapes takes; goes to run.log and
	// summary.json only
	Memory doctor.Limit `koanf:"memory" default:"warning 0.9"`
}

// DefaultOptions returns every check with the severity and threshold that docs/preflight.md explains.
func DefaultOptions() Options {
	o := Options{Enabled: true, Queries: 8, Steps: 3}
	doctor.SetDefaults(&o)
	return o
}

// Audit returns the thresholds of the data's checks. precision is advantage.precision.
func (o Options) Audit(precision float64) audit.Limits {
	return audit.Limits{Duplicates: o.DuplicateQueries.Limit, Leak: o.SplitLeak.Limit, OwnPool: o.QueryInOwnPool.Limit,
		Constant: o.ConstantRewards.Limit, Precise: o.SubprecisionRewards.Limit, Ties: o.ScoreTies.Limit, Small: o.SmallGroups.Limit,
		Mismatch: o.RecordReaderMismatch.Limit, Similarity: o.PoolUnlikeQuery.Limit, Precision: precision,
		Identical: o.IdenticalCandidates.Limit, Pictures: o.SharedPictures.Limit, Contradict: o.ContradictoryRewards.Limit,
		Blank: o.BlankRows.Limit, Scales: o.RewardScales.Limit, WorstFirst: o.WorstFirst.Limit,
		Outside: o.ScoresOutside.Limit}
}

// severities returns what the checks' findings are, by the checks' names.
func (o Options) severities() map[string]doctor.Severity {
	out, v := map[string]doctor.Severity{}, reflect.ValueOf(o)
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Struct {
			out[v.Type().Field(i).Tag.Get("koanf")] = v.Field(i).FieldByName("Severity").Interface().(doctor.Severity)
		}
	}
	return out
}
