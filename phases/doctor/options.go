package doctor

import "reflect"

// Switch configures a check that has no threshold.
type Switch struct {
	// what its finding is: off, note, warning, or stop, which ends the run
	Severity Severity `koanf:"severity" enum:"off,note,warning,stop"`
}

// Limit configures a check that holds one number against a threshold.
type Limit struct {
	// what its finding is: off, note, warning, or stop, which ends the run
	Severity Severity `koanf:"severity" enum:"off,note,warning,stop"`
	// threshold (the section says of what)
	Limit float64 `koanf:"limit" range:"[0,inf)"`
}

// Window configures a check that looks at the last steps of a phase.
type Window struct {
	// what its finding is: off, note, warning, or stop, which ends the run
	Severity Severity `koanf:"severity" enum:"off,note,warning,stop"`
	// threshold (the section says of what)
	Limit float64 `koanf:"limit" range:"[0,inf)"`
	// steps that it looks back over, and waits for before it speaks
	Steps int `koanf:"steps" range:"[1,1000]"`
}

// Streak configures a check of a condition that must hold for some steps in a row.
type Streak struct {
	// what its finding is: off, note, warning, or stop, which ends the run
	Severity Severity `koanf:"severity" enum:"off,note,warning,stop"`
	// steps in a row before it speaks
	Steps int `koanf:"steps" range:"[1,1000]"`
}

// Options configures the doctor (config section doctor).
type Options struct {
	// watch training; the checks read rows and change nothing
	Enabled bool `koanf:"enabled"`

	// least share of groups with a learning signal (rewards that differ)
	NoSignal Window `koanf:"no_signal"`
	// largest share of groups in which every candidate is equally good
	AllGoodGroups Window `koanf:"all_good_groups"`
	// share of groups with a learning signal below which most of the work is wasted
	LittleSignal Window `koanf:"little_signal"`
	// largest share of groups in which every candidate is equally bad
	AllBadGroups Window `koanf:"all_bad_groups"`
	// largest effective sample size of the RCE weights as a share of the group, at the smallest temperature of
	// the schedule
	ESSUniform Window `koanf:"ess_uniform"`
	// least effective sample size of the RCE weights, in candidates, at the largest temperature of the schedule
	ESSCollapsed Window `koanf:"ess_collapsed"`

	// the ratio is exactly 1 at the first step after the old policy was refreshed; limit: how far the
	// log-probabilities of two policies with equal weights may lie apart (rounding), in nats; 100 times that
	// for 16-bit models
	RatioNotOne Limit `koanf:"ratio_not_one"`
	// the ratio is not 1 (but for rounding) once the weights have moved away from the old policy's
	RatioStuckAtOne Streak `koanf:"ratio_stuck_at_one"`
	// largest share of ratios outside the clip range
	RatioClipped Window `koanf:"ratio_clipped"`
	// largest share of log-ratios cut at max_log_ratio
	RatioClamped Window `koanf:"ratio_clamped"`

	// largest KL, in multiples of the upper end of the band (kl.target_max)
	KLAboveBand Window `koanf:"kl_above_band"`
	// least KL, in multiples of the lower end of the band (kl.target_min)
	KLBelowBand Window `koanf:"kl_below_band"`
	// the KL coefficient does not sit on a bound while the KL pushes against it
	BetaAtBound Streak `koanf:"beta_at_bound"`
	// the KL coefficient rises after a KL above the band and falls after one below it
	BetaWrongWay Switch `koanf:"beta_wrong_way"`
	// the KL is not 0 (but for rounding) once the weights have moved away from the reference policy's
	KLStuckAtZero Streak `koanf:"kl_stuck_at_zero"`
	// largest KL, in nats per sequence, of a step whose policy has the reference policy's very weights
	KLNotZero Limit `koanf:"kl_not_zero"`
	// how far below 0 a KL may be that cannot be negative (rounding)
	KLNegative Limit `koanf:"kl_negative"`

	// least entropy, as a share of that of the phase's first steps
	EntropyCollapse Window `koanf:"entropy_collapse"`
	// mean length of sampled completions, as a share of the limit, above which most of them should count as cut
	CutCountsAsWhole Window `koanf:"cut_counts_as_whole"`
	// largest share of completions cut at the length limit
	AllTruncated Window `koanf:"all_truncated"`
	// least share of the policy's distribution that completions are drawn from (kept_mass) in a phase with
	// ratios, which are those of the whole distribution
	SamplingCut Window `koanf:"sampling_cut"`

	// largest gradient norm, in multiples of the median of the steps before
	GradientSpike Window `koanf:"gradient_spike"`
	// least gradient norm of steps that have a learning signal
	ZeroGradient Window `koanf:"zero_gradient"`
	// the learning rate is never 0
	ZeroLR Switch `koanf:"zero_lr"`
	// clip_factor is what grad_norm and optim.grad_clip_norm make it, and the first moment no longer than
	// clipped gradients can make it
	ClipIgnored Switch `koanf:"clip_ignored"`
	// the optimizer has taken as many steps as the phase, and its first moment is not that of the newest
	// gradient alone
	MomentsReset Switch `koanf:"moments_reset"`

	// the learning rate is what lr and lr_schedule say
	LROffSchedule Switch `koanf:"lr_off_schedule"`
	// the RCE temperature is what rce.temperature says
	TauOffSchedule Switch `koanf:"tau_off_schedule"`
	// as many candidates count as the curriculum says for the epoch
	TopKOffCurriculum Switch `koanf:"top_k_off_curriculum"`
	// no advantage lies beyond advantage.clip
	AdvantageBeyondClip Switch `koanf:"advantage_beyond_clip"`
	// advantages of both signs where the method centres whole groups
	AdvantageSigns Switch `koanf:"advantage_signs"`
	// largest difference between ppo_loss and minus the mean advantage where all ratios are 1
	SurrogateDiffers Limit `koanf:"surrogate_differs"`
	// largest absolute mean of a step's advantages where the method centres whole groups
	AdvantageNotCentred Limit `koanf:"advantage_not_centred"`

	// largest relative difference between the loss and the sum of its parts
	LossPartsDiffer Limit `koanf:"loss_parts_differ"`
	// largest loss of imitation (sft, rce), in multiples of that of the phase's first steps; never below 0
	LossDiverges Window `koanf:"loss_diverges"`
	// how many standard errors below 0 the advantage-weighted change of log-probabilities may lie: candidates
	// with a good advantage should become likelier
	ObjectiveFalls Window `koanf:"objective_falls"`
	// an epoch takes every query once
	QueriesMissing Switch `koanf:"queries_missing"`
	// shuffled epochs have orders of their own
	OrderRepeats Switch `koanf:"order_repeats"`
	// the batches of an epoch are of different queries
	BatchRepeats Streak `koanf:"batch_repeats"`

	// epochs in a row in which validation gets worse while training gets better
	ValidationDiverges Limit `koanf:"validation_diverges"`
	// val_reward is the mean of what the validation queries earn one by one
	ValidationMisreported Switch `koanf:"validation_misreported"`
	// validation numbers change once the weights do
	ValidationUnchanged Switch `koanf:"validation_unchanged"`
	// largest share of the initial policy's validation reward that training may lose
	WorseThanStart Limit `koanf:"worse_than_start"`

	// slowest stretch of a phase, in multiples of its typical step time; goes to run.log and summary.json only
	ThroughputDrop Limit `koanf:"throughput_drop"`
}

// DefaultOptions returns every check with the severity and threshold that docs/doctor.md explains.
func DefaultOptions() Options {
	return Options{
		Enabled: true,

		NoSignal:      Window{Stop, 0.05, 20},
		LittleSignal:  Window{Warning, 0.2, 20},
		AllGoodGroups: Window{Note, 0.9, 20},
		AllBadGroups:  Window{Note, 0.9, 20},
		ESSUniform:    Window{Warning, 0.97, 10},
		ESSCollapsed:  Window{Warning, 1.05, 10},

		RatioNotOne:     Limit{Stop, 1e-3},
		RatioStuckAtOne: Streak{Warning, 10},
		RatioClipped:    Window{Note, 0.95, 10},
		RatioClamped:    Window{Warning, 0.01, 10},

		KLAboveBand:   Window{Warning, 10, 10},
		KLBelowBand:   Window{Note, 0.1, 50},
		BetaAtBound:   Streak{Warning, 10},
		BetaWrongWay:  Switch{Warning},
		KLStuckAtZero: Streak{Warning, 10},
		KLNotZero:     Limit{Warning, 1e-3},
		KLNegative:    Limit{Warning, 1e-4},

		EntropyCollapse:  Window{Warning, 0.1, 10},
		AllTruncated:     Window{Warning, 0.95, 10},
		CutCountsAsWhole: Window{Warning, 0.98, 5},
		SamplingCut:      Window{Warning, 0.98, 10},

		GradientSpike: Window{Note, 10, 20},
		ZeroGradient:  Window{Warning, 1e-7, 3},
		ZeroLR:        Switch{Warning},
		ClipIgnored:   Switch{Warning},
		MomentsReset:  Switch{Warning},

		LROffSchedule:       Switch{Warning},
		TauOffSchedule:      Switch{Warning},
		TopKOffCurriculum:   Switch{Warning},
		AdvantageBeyondClip: Switch{Warning},
		AdvantageNotCentred: Limit{Warning, 0.01},
		AdvantageSigns:      Switch{Warning},
		SurrogateDiffers:    Limit{Warning, 1e-3},

		LossPartsDiffer: Limit{Warning, 1e-3},
		LossDiverges:    Window{Warning, 2, 10},
		ObjectiveFalls:  Window{Warning, 4, 10},
		BatchRepeats:    Streak{Warning, 2},
		QueriesMissing:  Switch{Warning},
		OrderRepeats:    Switch{Warning},

		ValidationDiverges:    Limit{Note, 2},
		ValidationUnchanged:   Switch{Warning},
		ValidationMisreported: Switch{Warning},
		WorseThanStart:        Limit{Warning, 0.2},

		ThroughputDrop: Limit{Note, 3},
	}
}

// Soften turns the stops of an option struct, to which options points, into warnings: for runs that must not be ended.
func Soften(options any) { soften(reflect.ValueOf(options).Elem()) }

func soften(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Struct:
			soften(f)
		case f.Type() == reflect.TypeFor[Severity]() && f.Interface() == Stop:
			f.Set(reflect.ValueOf(Warning))
		}
	}
}

// windows returns the options that look back.
func (o Options) windows() []Window {
	var out []Window
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if w, ok := v.Field(i).Interface().(Window); ok {
			out = append(out, w)
		}
	}
	return out
}
