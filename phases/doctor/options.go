package doctor

import (
	"fmt"
	"reflect"
	"strings"
)

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
	NoSignal Window `koanf:"no_signal" default:"stop 0.05 20"`
	// largest share of groups in which every candidate is equally good
	AllGoodGroups Window `koanf:"all_good_groups" default:"note 0.9 20"`
	// share of groups with a learning signal below which most of the work is wasted
	LittleSignal Window `koanf:"little_signal" default:"warning 0.2 20"`
	// largest share of groups in which every candidate is equally bad
	AllBadGroups Window `koanf:"all_bad_groups" default:"note 0.9 20"`
	// largest effective sample size of the RCE weights as a share of the group, at the smallest temperature of
	// the schedule
	ESSUniform Window `koanf:"ess_uniform" default:"warning 0.97 10"`
	// least effective sample size of the RCE weights, in candidates, at the largest temperature of the schedule
	ESSCollapsed Window `koanf:"ess_collapsed" default:"warning 1.05 10"`

	// the ratio is exactly 1 at the first step after the old policy was refreshed; limit: how far the
	// log-probabilities of two policies with equal weights may lie apart (rounding), in nats; 100 times that
	// for 16-bit models
	RatioNotOne Limit `koanf:"ratio_not_one" default:"stop 1e-3"`
	// the ratio is not 1 (but for rounding) once the weights have moved away from the old policy's
	RatioStuckAtOne Streak `koanf:"ratio_stuck_at_one" default:"warning 10"`
	// largest share of ratios outside the clip range
	RatioClipped Window `koanf:"ratio_clipped" default:"note 0.95 10"`
	// largest share of log-ratios cut at max_log_ratio
	RatioClamped Window `koanf:"ratio_clamped" default:"warning 0.01 10"`

	// largest KL, in multiples of the upper end of the band (kl.target_max)
	KLAboveBand Window `koanf:"kl_above_band" default:"warning 10 10"`
	// least KL, in multiples of the lower end of the band (kl.target_min)
	KLBelowBand Window `koanf:"kl_below_band" default:"note 0.1 50"`
	// the KL coefficient does not sit on a bound while the KL pushes against it
	BetaAtBound Streak `koanf:"beta_at_bound" default:"warning 10"`
	// the KL coefficient rises after a KL above the band and falls after one below it
	BetaWrongWay Switch `koanf:"beta_wrong_way" default:"warning"`
	// the KL is not 0 (but for rounding) once the weights have moved away from the reference policy's
	KLStuckAtZero Streak `koanf:"kl_stuck_at_zero" default:"warning 10"`
	// largest KL, in nats per sequence, of a step whose policy has the reference policy's very weights
	KLNotZero Limit `koanf:"kl_not_zero" default:"warning 1e-3"`
	// how far below 0 a KL may be that cannot be negative (rounding)
	KLNegative Limit `koanf:"kl_negative" default:"warning 1e-4"`

	// least entropy, as a share of that of the phase's first steps
	EntropyCollapse Window `koanf:"entropy_collapse" default:"warning 0.1 10"`
	// mean length of sampled completions, as a share of the limit, above which most of them should count as cut
	CutCountsAsWhole Window `koanf:"cut_counts_as_whole" default:"warning 0.98 5"`
	// largest share of completions cut at the length limit
	AllTruncated Window `koanf:"all_truncated" default:"warning 0.95 10"`
	// least share of the policy's distribution that completions are drawn from (kept_mass) in a phase with
	// ratios, which are those of the whole distribution
	SamplingCut Window `koanf:"sampling_cut" default:"warning 0.98 10"`

	// largest gradient norm, in multiples of the median of the steps before
	GradientSpike Window `koanf:"gradient_spike" default:"note 10 20"`
	// least gradient norm of steps that have a learning signal
	ZeroGradient Window `koanf:"zero_gradient" default:"warning 1e-7 3"`
	// the learning rate is never 0
	ZeroLR Switch `koanf:"zero_lr" default:"warning"`
	// clip_factor is what grad_norm and optim.grad_clip_norm make it, and the first moment no longer than
	// clipped gradients can make it
	ClipIgnored Switch `koanf:"clip_ignored" default:"warning"`
	// the optimizer has taken as many steps as the phase, and its first moment is not that of the newest
	// gradient alone
	MomentsReset Switch `koanf:"moments_reset" default:"warning"`

	// the learning rate is what lr and lr_schedule say
	LROffSchedule Switch `koanf:"lr_off_schedule" default:"warning"`
	// the RCE temperature is what rce.temperature says
	TauOffSchedule Switch `koanf:"tau_off_schedule" default:"warning"`
	// as many candidates count as the curriculum says for the epoch
	TopKOffCurriculum Switch `koanf:"top_k_off_curriculum" default:"warning"`
	// no advantage lies beyond advantage.clip
	AdvantageBeyondClip Switch `koanf:"advantage_beyond_clip" default:"warning"`
	// advantages of both signs where the method centres whole groups
	AdvantageSigns Switch `koanf:"advantage_signs" default:"warning"`
	// largest difference between ppo_loss and minus the mean advantage where all ratios are 1
	SurrogateDiffers Limit `koanf:"surrogate_differs" default:"warning 1e-3"`
	// largest absolute mean of a step's advantages where the method centres whole groups
	AdvantageNotCentred Limit `koanf:"advantage_not_centred" default:"warning 0.01"`

	// largest relative difference between the loss and the sum of its parts
	LossPartsDiffer Limit `koanf:"loss_parts_differ" default:"warning 1e-3"`
	// largest loss of imitation (sft, rce), in multiples of that of the phase's first steps; never below 0
	LossDiverges Window `koanf:"loss_diverges" default:"warning 2 10"`
	// how many standard errors below 0 the advantage-weighted change of log-probabilities may lie: candidates
	// with a good advantage should become likelier
	ObjectiveFalls Window `koanf:"objective_falls" default:"warning 4 10"`
	// an epoch takes every query once
	QueriesMissing Switch `koanf:"queries_missing" default:"warning"`
	// shuffled epochs have orders of their own
	OrderRepeats Switch `koanf:"order_repeats" default:"warning"`
	// the batches of an epoch are of different queries
	BatchRepeats Streak `koanf:"batch_repeats" default:"warning 2"`

	// epochs in a row in which validation gets worse while training gets better
	ValidationDiverges Limit `koanf:"validation_diverges" default:"note 2"`
	// val_reward is the mean of what the validation queries earn one by one
	ValidationMisreported Switch `koanf:"validation_misreported" default:"warning"`
	// largest share of the best epoch's validation reward that a later epoch may lose
	ValidationFalls Limit `koanf:"validation_falls" default:"warning 0.3"`
	// validation numbers change once the weights do
	ValidationUnchanged Switch `koanf:"validation_unchanged" default:"warning"`
	// largest share of the initial policy's validation reward that training may lose
	WorseThanStart Limit `koanf:"worse_than_start" default:"warning 0.2"`

	// slowest stretch of a phase, in multiples of its typical step time; goes to run.log and summary.json only
	ThroughputDrop Limit `koanf:"throughput_drop" default:"note 3"`
}

// DefaultOptions returns every check with the severity and threshold that docs/doctor.md explains.
func DefaultOptions() Options {
	o := Options{Enabled: true}
	SetDefaults(&o)
	return o
}

// SetDefaults sets each check of an option struct, to which options points, to its tag default: the values of the check's fields in their
// order.
func SetDefaults(options any) {
	v := reflect.ValueOf(options).Elem()
	for i := range v.NumField() {
		for k, word := range strings.Fields(v.Type().Field(i).Tag.Get("default")) {
			fmt.Sscan(word, v.Field(i).Field(k).Addr().Interface())
		}
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
