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
	DuplicateQueries doctor.Limit `koanf:"duplicate_queries"`
	// largest share of validation or held-out queries whose content is trained on; a shared id is always a
	// finding
	SplitLeak doctor.Limit `koanf:"split_leak"`
	// largest share of queries that are their own candidates
	QueryInOwnPool doctor.Limit `koanf:"query_in_own_pool"`
	// largest share of recorded groups with equal rewards
	ConstantRewards doctor.Limit `koanf:"constant_rewards"`
	// largest share of recorded groups whose rewards differ by no more than advantage.precision
	SubprecisionRewards doctor.Limit `koanf:"subprecision_rewards"`
	// largest share of recorded groups with several best candidates
	ScoreTies doctor.Limit `koanf:"score_ties"`
	// largest share of recorded groups with fewer than two candidates (grpo)
	SmallGroups doctor.Limit `koanf:"small_groups"`
	// recorded and sampled candidates have finite rewards
	NonfiniteRewards doctor.Switch `koanf:"nonfinite_rewards"`
	// largest share of recorded rewards that the reader contradicts
	RecordReaderMismatch doctor.Limit `koanf:"record_reader_mismatch"`
	// standard errors by which queries are nearer to their own pools than to those of others
	PoolUnlikeQuery doctor.Limit `koanf:"pool_unlike_query"`
	// largest share of the candidates of a pool whose embedding another one there has
	IdenticalCandidates doctor.Limit `koanf:"identical_candidates"`
	// largest share of the samples with pictures that show the same ones
	SharedPictures doctor.Limit `koanf:"shared_pictures"`
	// largest share of recorded groups that hold the same candidate under different rewards
	ContradictoryRewards doctor.Limit `koanf:"contradictory_rewards"`

	// a step of the phase ends without an error
	StepFailed doctor.Switch `koanf:"step_failed"`
	// the log-probabilities have a gradient to every trained tensor
	GradientMissing doctor.Switch `koanf:"gradient_missing"`
	// every trained tensor moves within the steps
	ParametersDoNotMove doctor.Switch `koanf:"parameters_do_not_move"`
	// frozen tensors and the reference policy stay as they are
	FrozenMove doctor.Switch `koanf:"frozen_move"`
	// the ratio of the policy to itself is exactly 1
	RatioNotOne doctor.Switch `koanf:"ratio_not_one"`
	// largest difference of a log-probability with and without gradient, in nats
	GradNogradDiffer doctor.Limit `koanf:"grad_nograd_differ"`
	// largest difference of a log-probability between two evaluations, in nats
	ForwardNotDeterminist doctor.Limit `koanf:"forward_not_deterministic"`
	// largest difference of a log-probability alone and in a batch of others, in nats
	BatchChangesOutput doctor.Limit `koanf:"batch_changes_output"`
	// largest relative difference of loss and gradient norm with padding added to the batch
	PaddingChangesLoss doctor.Limit `koanf:"padding_changes_loss"`
	// largest relative difference of the gradient norm between two steps from the same weights
	GradientsAccumulate doctor.Limit `koanf:"gradients_accumulate"`
	// a step makes the better candidates of its batch likelier
	ObjectiveNotImproved doctor.Switch `koanf:"objective_not_improved"`
	// trained weights that move change the log-probabilities
	WeightsIgnored doctor.Switch `koanf:"weights_ignored"`
	// how far the gradient of the first step may be from that of its candidates' own rewards, as a share of
	// what sets these apart
	CreditMisplaced doctor.Limit `koanf:"credit_misplaced"`
	// a gradient longer than optim.grad_clip_norm reaches the optimizer clipped
	ClipIgnored doctor.Switch `koanf:"clip_ignored"`
	// the optimizer's moments are those of its steps so far, by optim.betas
	MomentsDiffer doctor.Switch `koanf:"moments_differ"`
	// the first step moves the weights by the learning rate
	StepSize doctor.Switch `koanf:"step_size"`
	// standard errors by which sampled candidates may be likelier or less likely than draws at the configured
	// temperature
	SamplingDiffers doctor.Limit `koanf:"sampling_differs"`
	// steps, queries and candidates have random numbers of their own
	NoiseRepeats doctor.Switch `koanf:"noise_repeats"`
	// sampled completions without an end count as cut
	TruncationUnmarked doctor.Switch `koanf:"truncation_unmarked"`

	// recorded candidates reach the phases with the steps and rewards that stand in the data, alone and in a
	// batch
	RecordedDiffer doctor.Switch `koanf:"recorded_differ"`
	// candidates earn in a batch, and where they are sampled, what each earns alone
	ScoresDiffer doctor.Switch `koanf:"scores_differ"`
	// validation reports what the policy's answers earn one by one
	ValidationDiffers doctor.Switch `koanf:"validation_differs"`
	// largest share of recorded candidates that are others after decoding and encoding
	RoundTrip doctor.Limit `koanf:"round_trip"`

	// least change of a log-probability when the image is another or blank, in nats
	ImagesIgnored doctor.Limit `koanf:"images_ignored"`
	// least change of a log-probability when the prompt's text is another, in nats
	TextIgnored doctor.Limit `koanf:"text_ignored"`
	// standard errors by which answers are likelier with their own images than with others (not from scratch)
	ImagesDoNotHelp doctor.Limit `koanf:"images_do_not_help"`
	// loaded adapters change the log-probabilities
	LoRAIgnored doctor.Switch `koanf:"lora_ignored"`
	// every tensor of vl.adapter or seq2seq.adapter stands in the model as it is in the file
	AdapterKeys doctor.Switch `koanf:"adapter_keys"`

	// largest share of the free memory that a step with the largest shapes takes; goes to run.log and
	// summary.json only
	Memory doctor.Limit `koanf:"memory"`
}

// DefaultOptions returns every check with the severity and threshold that docs/preflight.md explains.
func DefaultOptions() Options {
	const note, warning, stop = doctor.Note, doctor.Warning, doctor.Stop
	return Options{
		Enabled: true, Queries: 8, Steps: 3,

		DuplicateQueries:     doctor.Limit{Severity: warning, Limit: 0.1},
		SplitLeak:            doctor.Limit{Severity: warning, Limit: 0.02},
		QueryInOwnPool:       doctor.Limit{Severity: warning, Limit: 0.02},
		ConstantRewards:      doctor.Limit{Severity: warning, Limit: 0.9},
		SubprecisionRewards:  doctor.Limit{Severity: warning, Limit: 0.5},
		ScoreTies:            doctor.Limit{Severity: note, Limit: 0.9},
		SmallGroups:          doctor.Limit{Severity: warning, Limit: 0.5},
		NonfiniteRewards:     doctor.Switch{Severity: stop},
		RecordReaderMismatch: doctor.Limit{Severity: warning, Limit: 0.01},
		PoolUnlikeQuery:      doctor.Limit{Severity: warning, Limit: 3},
		IdenticalCandidates:  doctor.Limit{Severity: warning, Limit: 0.1},
		SharedPictures:       doctor.Limit{Severity: warning, Limit: 0.5},
		ContradictoryRewards: doctor.Limit{Severity: warning, Limit: 0.5},

		StepFailed:            doctor.Switch{Severity: stop},
		GradientMissing:       doctor.Switch{Severity: stop},
		ParametersDoNotMove:   doctor.Switch{Severity: stop},
		FrozenMove:            doctor.Switch{Severity: stop},
		RatioNotOne:           doctor.Switch{Severity: stop},
		GradNogradDiffer:      doctor.Limit{Severity: stop, Limit: 1e-4},
		ForwardNotDeterminist: doctor.Limit{Severity: stop, Limit: 1e-5},
		BatchChangesOutput:    doctor.Limit{Severity: warning, Limit: 1e-3},
		PaddingChangesLoss:    doctor.Limit{Severity: warning, Limit: 1e-3},
		GradientsAccumulate:   doctor.Limit{Severity: stop, Limit: 1e-2},
		ObjectiveNotImproved:  doctor.Switch{Severity: warning},
		WeightsIgnored:        doctor.Switch{Severity: stop},
		CreditMisplaced:       doctor.Limit{Severity: stop, Limit: 0.2},
		ClipIgnored:           doctor.Switch{Severity: warning},
		MomentsDiffer:         doctor.Switch{Severity: stop},
		StepSize:              doctor.Switch{Severity: warning},
		SamplingDiffers:       doctor.Limit{Severity: warning, Limit: 6},
		NoiseRepeats:          doctor.Switch{Severity: warning},
		TruncationUnmarked:    doctor.Switch{Severity: warning},

		RecordedDiffer:    doctor.Switch{Severity: stop},
		ScoresDiffer:      doctor.Switch{Severity: stop},
		ValidationDiffers: doctor.Switch{Severity: stop},
		RoundTrip:         doctor.Limit{Severity: warning, Limit: 0.1},

		ImagesIgnored:   doctor.Limit{Severity: warning, Limit: 1e-6},
		TextIgnored:     doctor.Limit{Severity: warning, Limit: 1e-6},
		ImagesDoNotHelp: doctor.Limit{Severity: warning, Limit: 2},
		LoRAIgnored:     doctor.Switch{Severity: warning},
		AdapterKeys:     doctor.Switch{Severity: stop},

		Memory: doctor.Limit{Severity: warning, Limit: 0.9},
	}
}

// Audit returns the thresholds of the data's checks. precision is advantage.precision.
func (o Options) Audit(precision float64) audit.Limits {
	return audit.Limits{Duplicates: o.DuplicateQueries.Limit, Leak: o.SplitLeak.Limit, OwnPool: o.QueryInOwnPool.Limit,
		Constant: o.ConstantRewards.Limit, Precise: o.SubprecisionRewards.Limit, Ties: o.ScoreTies.Limit, Small: o.SmallGroups.Limit,
		Mismatch: o.RecordReaderMismatch.Limit, Similarity: o.PoolUnlikeQuery.Limit, Precision: precision,
		Identical: o.IdenticalCandidates.Limit, Pictures: o.SharedPictures.Limit, Contradict: o.ContradictoryRewards.Limit}
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
