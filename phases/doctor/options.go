package doctor

// Switch configures a check that has no threshold.
type Switch struct {
	Severity Severity `koanf:"severity" help:"what its finding is: off, note, warning, or stop, which ends the run" enum:"off,note,warning,stop"`
}

// Limit configures a check that holds one number against a threshold.
type Limit struct {
	Severity Severity `koanf:"severity" help:"what its finding is: off, note, warning, or stop, which ends the run" enum:"off,note,warning,stop"`
	Limit    float64  `koanf:"limit" help:"threshold (the section says of what)" range:"[0,inf)"`
}

// Window configures a check that looks at the last steps of a phase.
type Window struct {
	Severity Severity `koanf:"severity" help:"what its finding is: off, note, warning, or stop, which ends the run" enum:"off,note,warning,stop"`
	Limit    float64  `koanf:"limit" help:"threshold (the section says of what)" range:"[0,inf)"`
	Steps    int      `koanf:"steps" help:"steps that it looks back over, and waits for before it speaks" range:"[1,1000]"`
}

// Streak configures a check of a condition that must hold for some steps in a row.
type Streak struct {
	Severity Severity `koanf:"severity" help:"what its finding is: off, note, warning, or stop, which ends the run" enum:"off,note,warning,stop"`
	Steps    int      `koanf:"steps" help:"steps in a row before it speaks" range:"[1,1000]"`
}

// Options configures the doctor (config section doctor).
type Options struct {
	Enabled bool `koanf:"enabled" help:"watch training; the checks read rows and change nothing"`

	NoSignal      Window `koanf:"no_signal" help:"least share of groups with a learning signal (rewards that differ)"`
	AllGoodGroups Window `koanf:"all_good_groups" help:"largest share of groups in which every candidate is equally good"`
	LittleSignal  Window `koanf:"little_signal" help:"share of groups with a learning signal below which most of the work is wasted"`
	AllBadGroups  Window `koanf:"all_bad_groups" help:"largest share of groups in which every candidate is equally bad"`
	ESSUniform    Window `koanf:"ess_uniform" help:"largest effective sample size of the RCE weights as a share of the group, at the smallest temperature of the schedule"`
	ESSCollapsed  Window `koanf:"ess_collapsed" help:"least effective sample size of the RCE weights, in candidates, at the largest temperature of the schedule"`

	RatioNotOne     Limit  `koanf:"ratio_not_one" help:"the ratio is exactly 1 at the first step after the old policy was refreshed; limit: how far the log-probabilities of two policies with equal weights may lie apart (rounding), in nats; 100 times that for 16-bit models"`
	RatioStuckAtOne Streak `koanf:"ratio_stuck_at_one" help:"the ratio is not 1 (but for rounding) once the weights have moved away from the old policy's"`
	RatioClipped    Window `koanf:"ratio_clipped" help:"largest share of ratios outside the clip range"`
	RatioClamped    Window `koanf:"ratio_clamped" help:"largest share of log-ratios cut at max_log_ratio"`

	KLAboveBand   Window `koanf:"kl_above_band" help:"largest KL, in multiples of the upper end of the band (kl.target_max)"`
	KLBelowBand   Window `koanf:"kl_below_band" help:"least KL, in multiples of the lower end of the band (kl.target_min)"`
	BetaAtBound   Streak `koanf:"beta_at_bound" help:"the KL coefficient does not sit on a bound while the KL pushes against it"`
	BetaWrongWay  Switch `koanf:"beta_wrong_way" help:"the KL coefficient rises after a KL above the band and falls after one below it"`
	KLStuckAtZero Streak `koanf:"kl_stuck_at_zero" help:"the KL is not 0 (but for rounding) once the weights have moved away from the reference policy's"`
	KLNotZero     Limit  `koanf:"kl_not_zero" help:"largest KL, in nats per sequence, of a step whose policy has the reference policy's very weights"`
	KLNegative    Limit  `koanf:"kl_negative" help:"how far below 0 a KL may be that cannot be negative (rounding)"`

	EntropyCollapse  Window `koanf:"entropy_collapse" help:"least entropy, as a share of that of the phase's first steps"`
	CutCountsAsWhole Window `koanf:"cut_counts_as_whole" help:"mean length of sampled completions, as a share of the limit, above which most of them should count as cut"`
	AllTruncated     Window `koanf:"all_truncated" help:"largest share of completions cut at the length limit"`
	SamplingCut      Window `koanf:"sampling_cut" help:"least share of the policy's distribution that completions are drawn from (kept_mass) in a phase with ratios, which are those of the whole distribution"`

	GradientSpike Window `koanf:"gradient_spike" help:"largest gradient norm, in multiples of the median of the steps before"`
	ZeroGradient  Window `koanf:"zero_gradient" help:"least gradient norm of steps that have a learning signal"`
	ZeroLR        Switch `koanf:"zero_lr" help:"the learning rate is never 0"`
	ClipIgnored   Switch `koanf:"clip_ignored" help:"clip_factor is what grad_norm and optim.grad_clip_norm make it, and the first moment no longer than clipped gradients can make it"`
	MomentsReset  Switch `koanf:"moments_reset" help:"the optimizer has taken as many steps as the phase, and its first moment is not that of the newest gradient alone"`

	LROffSchedule       Switch `koanf:"lr_off_schedule" help:"the learning rate is what lr and lr_schedule say"`
	TauOffSchedule      Switch `koanf:"tau_off_schedule" help:"the RCE temperature is what rce.temperature says"`
	TopKOffCurriculum   Switch `koanf:"top_k_off_curriculum" help:"as many candidates count as the curriculum says for the epoch"`
	AdvantageBeyondClip Switch `koanf:"advantage_beyond_clip" help:"no advantage lies beyond advantage.clip"`
	AdvantageSigns      Switch `koanf:"advantage_signs" help:"advantages of both signs where the method centres whole groups"`
	SurrogateDiffers    Limit  `koanf:"surrogate_differs" help:"largest difference between ppo_loss and minus the mean advantage where all ratios are 1"`
	AdvantageNotCentred Limit  `koanf:"advantage_not_centred" help:"largest absolute mean of a step's advantages where the method centres whole groups"`

	LossPartsDiffer Limit  `koanf:"loss_parts_differ" help:"largest relative difference between the loss and the sum of its parts"`
	LossDiverges    Window `koanf:"loss_diverges" help:"largest loss of imitation (sft, rce), in multiples of that of the phase's first steps; never below 0"`
	ObjectiveFalls  Window `koanf:"objective_falls" help:"how many standard errors below 0 the advantage-weighted change of log-probabilities may lie: candidates with a good advantage should become likelier"`
	QueriesMissing  Switch `koanf:"queries_missing" help:"an epoch takes every query once"`
	OrderRepeats    Switch `koanf:"order_repeats" help:"shuffled epochs have orders of their own"`
	BatchRepeats    Streak `koanf:"batch_repeats" help:"the batches of an epoch are of different queries"`

	ValidationDiverges    Limit  `koanf:"validation_diverges" help:"epochs in a row in which validation gets worse while training gets better"`
	ValidationMisreported Switch `koanf:"validation_misreported" help:"val_reward is the mean of what the validation queries earn one by one"`
	ValidationUnchanged   Switch `koanf:"validation_unchanged" help:"validation numbers change once the weights do"`
	WorseThanStart        Limit  `koanf:"worse_than_start" help:"largest share of the initial policy's validation reward that training may lose"`

	ThroughputDrop Limit `koanf:"throughput_drop" help:"slowest stretch of a phase, in multiples of its typical step time; goes to run.log and summary.json only"`
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

// windows are the options that look back.
func (o Options) windows() []Window {
	return []Window{o.NoSignal, o.LittleSignal, o.CutCountsAsWhole, o.AllGoodGroups, o.AllBadGroups, o.ESSUniform, o.ESSCollapsed, o.RatioClipped, o.RatioClamped,
		o.KLAboveBand, o.KLBelowBand, o.EntropyCollapse, o.AllTruncated, o.SamplingCut, o.GradientSpike, o.LossDiverges, o.ObjectiveFalls}
}
