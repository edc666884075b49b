package board

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/arms"
	"fulcrum/reports/curves"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// Most of what is averaged over seeds at a time: every run's rows are read for it.
const (
	maxSettings = 8
	maxSeeds    = 20
)

// seedsAnswer holds a mean for each setting that has runs of several seeds.
type seedsAnswer struct {
	Version  string         `json:"version"`
	Same     bool           `json:"same,omitempty"` // nothing has changed since the version that was asked about
	Settings []curves.Shown `json:"settings"`
}

// alike are runs that differ in their seed.
type alike struct {
	label string
	ids   []string
}

// seeds averages the metrics that q names (none: those of validation and the loss) over the runs of each group that of returns,
// where there are several.
func (b *Board) seeds(of func(string) ([]alike, error), ids string, q url.Values) (*seedsAnswer, error) {
	groups, err := of(ids)
	if err != nil {
		return nil, err
	}
	names := []string{"val_reward", "val_accuracy", "val_recorded_reward", "val_loss", "val_kl", "mean_reward", "loss", "kl", "entropy"}
	if q.Get("names") != "" {
		names = strings.Split(q.Get("names"), ",")
	}
	a := &seedsAnswer{Settings: []curves.Shown{}}
	var stamps []string
	groups = slices.DeleteFunc(groups, func(g alike) bool { return len(g.ids) < 2 })
	groups = groups[:min(len(groups), maxSettings)]
	for i, g := range groups {
		groups[i].ids = g.ids[:min(len(g.ids), maxSeeds)]
		for _, id := range groups[i].ids {
			e, _ := b.run(id)
			stamps = append(stamps, fmt.Sprint(id, e.stamp.Metrics))
		}
	}
	a.Version = idOf(strings.Join(append(stamps, names...), " "))
	if a.Same = a.Version == q.Get("since"); a.Same {
		return a, nil
	}
	for _, g := range groups {
		var runs []curves.Shown
		var ids []string
		for _, id := range g.ids {
			e, _ := b.run(id)
			if err := b.readWhole(id); err != nil {
				return nil, err
			}
			err := b.rows(id, e.dir, func(c *curves.Curves, _ bool) {
				if len(c.Phases) > 0 {
					runs = append(runs, curves.Shown{Started: c.Started, Phases: slices.Clone(c.Phases), Steps: curves.DrawnOf(c.Steps, names, 300, false),
						Epochs: curves.DrawnOf(c.Epochs, names, 300, false)})
					ids = append(ids, id)
				}
			})
			if err != nil {
				return nil, err
			}
		}
		if len(runs) > 1 {
			mean := curves.OverSeeds(g.label, runs)
			mean.Runs = ids
			a.Settings = append(a.Settings, mean)
		}
	}
	return a, nil
}

// settings are the runs of a sweep by what they differ in but for the seed, best first, as the sweep's report has them: none that was
// pruned, whose curve would cut the others' short, or violates a constraint.
func (b *Board) settings(id string) ([]alike, error) {
	_, opt, jobs, err := b.ledgerOf(id)
	if err != nil {
		return nil, err
	}
	var groups []alike
	for _, setting := range sweeps.ModelOf(jobs, opt).Settings {
		arm, label := setting.Jobs[0].Params[sweeps.ArmKey], cmp.Or(strings.Join(setting.Overrides, " "), "all seeds")
		g := alike{label: strings.Replace(label, sweeps.ArmKey+"="+arm, opt.Study.Sets(arm), 1)}
		for _, j := range setting.Jobs {
			if e, ok := b.run(idOf(j.Dir)); ok && e.State != record.StateFailed && j.State != record.StatePruned && !sweeps.Violates(j) {
				g.ids = append(g.ids, e.ID)
			}
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// seeded are the runs of a selection by their setting: jobs by those of their sweep, which knows that the arm of a study starts from
// another checkpoint for each seed, others by their configuration.
func (b *Board) seeded(ids string) ([]alike, error) {
	selected, err := b.selected(ids)
	if err != nil {
		return nil, err
	}
	var groups []alike
	var sweeps, others []string
	for _, e := range selected {
		if e.Sweep == "" {
			others = append(others, e.ID)
		} else if !slices.Contains(sweeps, e.Sweep) {
			sweeps = append(sweeps, e.Sweep)
		}
	}
	for _, sweep := range sweeps {
		settings, err := b.settings(sweep)
		if err != nil {
			return nil, err
		}
		for _, g := range settings {
			g.ids = slices.DeleteFunc(g.ids, func(id string) bool {
				return !slices.ContainsFunc(selected, func(e entry) bool { return e.ID == id })
			})
			groups = append(groups, g)
		}
	}
	if len(others) == 0 {
		return groups, nil
	}
	arms, err := b.arms(strings.Join(others, ","))
	return append(groups, arms...), err
}

// arms are the runs of a selection by what they differ in but for the seed, as their comparison has them.
func (b *Board) arms(ids string) ([]alike, error) {
	selected, err := b.selected(ids)
	if err != nil {
		return nil, err
	}
	runs := list.Map(selected, func(e entry) *record.Run {
		run := &record.Run{Dir: e.dir}
		_ = run.ReadConfig() // without one it stands alone
		return run
	})
	return list.Map(arms.ArmsOf(runs), func(arm arms.ComparedArm) alike {
		return alike{arm.Name, list.Map(arm.Runs, func(r *record.Run) string { return idOf(r.Dir) })}
	}), nil
}
