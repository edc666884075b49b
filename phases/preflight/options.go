package preflight

import (
	"maps"
	"slices"

	"fulcrum/beamdata/audit"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/registry"
	"fulcrum/phases/doctor"
)

// Options says what a run is checked for (config section checks): by this package before it trains, and by package doctor while it does.
type Options struct {
	// checks that say nothing, by name; preflight stands for all before a fresh run's first step (docs/preflight.md),
	// doctor for all of training's rows (docs/doctor.md)
	Off []string `koanf:"off"`
	// what findings are, by the check's name: note, warning, or stop, which ends the run
	Severity map[string]doctor.Severity `koanf:"severity" enum:"note,warning,stop"`

	Soft bool // no finding ends the run
}

// The names in Options.Off that stand for all checks of a kind.
const (
	allOfPreflight = "preflight"
	allOfDoctor    = "doctor"
)

// Tries reports whether anything is checked before training.
func (o Options) Tries() bool { return !slices.Contains(o.Off, allOfPreflight) }

// Validate refuses names that no check has.
func (o Options) Validate() error {
	names := list.Map(append(Checks(), doctor.Checks()...), func(c doctor.Check) string { return c.Name })
	refuse := func(key, name string) error {
		return option.Errorf(key, "unknown check %q%s; docs/preflight.md and docs/doctor.md list them", name,
			registry.DidYouMean(registry.Suggest(name, names)))
	}
	for _, name := range o.Off {
		if !slices.Contains(names, name) && name != allOfPreflight && name != allOfDoctor {
			return refuse("off", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Severity)) {
		if !slices.Contains(names, name) {
			return refuse("severity."+name, name)
		}
	}
	return nil
}

// Adjusted returns checks of this package or of the doctor as the options want them.
func (o Options) Adjusted(checks []doctor.Check) []doctor.Check {
	return list.Map(checks, func(c doctor.Check) doctor.Check {
		if s, ok := o.Severity[c.Name]; ok {
			c.Severity = s
		}
		if slices.Contains(o.Off, c.Name) {
			c.Severity = doctor.Off // it may keep numbers that others look at
		}
		if o.Soft && c.Severity == doctor.Stop {
			c.Severity = doctor.Warning
		}
		return c
	})
}

// Rows returns the checks of the rows of training; none where they are switched off.
func (o Options) Rows() []doctor.Check {
	if slices.Contains(o.Off, allOfDoctor) {
		return nil
	}
	return o.Adjusted(doctor.Checks())
}

// Checks lists every check of the preflight. The limit of one whose numbers are rough in 16 bits is a thousand times as wide there.
func Checks() []doctor.Check {
	const note, warning, stop = doctor.Note, doctor.Warning, doctor.Stop
	return append(ofData(), []doctor.Check{
		{Name: "recorded_differ", Severity: stop}, {Name: "scores_differ", Severity: stop}, {Name: "validation_differs", Severity: stop},
		{Name: "round_trip", Severity: warning, Limit: roundTrip},
		{Name: "embeddings_unrelated", Severity: stop, Limit: chance}, {Name: "input_predicts_rewards", Severity: warning, Limit: predicted},

		{Name: "step_failed", Severity: stop}, {Name: "gradient_missing", Severity: stop}, {Name: "parameters_do_not_move", Severity: stop},
		{Name: "frozen_move", Severity: stop}, {Name: "ratio_not_one", Severity: stop},
		{Name: "grad_nograd_differ", Severity: stop, Limit: gradNograd},
		{Name: "forward_not_deterministic", Severity: stop, Limit: twice},
		{Name: "batch_changes_output", Severity: warning, Limit: inBatch},
		{Name: "padding_changes_loss", Severity: warning, Limit: padded},
		{Name: "gradients_accumulate", Severity: stop, Limit: accumulated},
		{Name: "objective_not_improved", Severity: warning}, {Name: "weights_ignored", Severity: stop},
		{Name: "credit_misplaced", Severity: stop, Limit: misplaced},
		{Name: "advantages_differ", Severity: stop, Limit: again}, {Name: "loss_differs", Severity: stop, Limit: again},
		{Name: "kl_differs", Severity: stop, Limit: klAgain}, {Name: "samples_repeat", Severity: warning, Limit: copied},
		{Name: "clip_ignored", Severity: warning}, {Name: "moments_differ", Severity: stop}, {Name: "step_size", Severity: warning},
		{Name: "too_few_steps", Severity: warning, Limit: tooLittle}, {Name: "step_too_large", Severity: warning, Limit: tooFar},
		{Name: "sampling_differs", Severity: warning, Limit: unlikely},
		{Name: "noise_repeats", Severity: warning}, {Name: "truncation_unmarked", Severity: warning},

		{Name: "images_ignored", Severity: warning, Limit: unread}, {Name: "text_ignored", Severity: warning, Limit: unread},
		{Name: "images_do_not_help", Severity: warning, Limit: helped},
		{Name: "memory", Severity: warning, Limit: crowded}, {Name: "disk", Severity: stop, Limit: crowded},
	}...)
}

// ofData lists the checks of package audit.
func ofData() []doctor.Check {
	const note, warning, stop = doctor.Note, doctor.Warning, doctor.Stop
	return []doctor.Check{
		{Name: "duplicate_queries", Severity: warning, Limit: audit.Duplicates},
		{Name: "split_leak", Severity: warning, Limit: audit.Leak},
		{Name: "query_in_own_pool", Severity: warning, Limit: audit.OwnPool},
		{Name: "held_out_in_pools", Severity: warning},
		{Name: "constant_rewards", Severity: warning, Limit: audit.ConstantRewards},
		{Name: "subprecision_rewards", Severity: warning, Limit: audit.SubprecisionRewards},
		{Name: "score_ties", Severity: note, Limit: audit.ScoreTies},
		{Name: "small_groups", Severity: warning, Limit: audit.SmallGroups},
		{Name: "nonfinite_rewards", Severity: stop},
		{Name: "record_reader_mismatch", Severity: warning, Limit: audit.ReaderMismatch},
		{Name: "contradictory_rewards", Severity: warning, Limit: audit.ContradictoryRewards},
		{Name: "identical_candidates", Severity: warning, Limit: audit.IdenticalCandidates},
		{Name: "shared_pictures", Severity: warning, Limit: audit.SamePictures},
		{Name: "pool_unlike_query", Severity: warning, Limit: audit.PoolUnlike},
		{Name: "equal_rows", Severity: stop},
		{Name: "blank_rows", Severity: warning, Limit: audit.BlankRows},
		{Name: "reward_scales", Severity: warning, Limit: audit.RewardScales},
		{Name: "worst_first", Severity: warning, Limit: audit.WorstFirst},
		{Name: "scores_outside", Severity: warning, Limit: audit.ScoresOutside},
	}
}
