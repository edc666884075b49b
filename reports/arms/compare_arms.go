package arms

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// ComparedArm holds the runs of one setting in a comparison.
type ComparedArm struct {
	Name   string // arm 1, arm 2, …: letters are runs
	Runs   []*record.Run
	Names  []string // of the runs
	Asked  string   // what they are of and answers how its arms differ, whose rule is its own; "": nothing
	Policy string   // that is compared, as evals.jsonl names it; "": what each run ended with, the best checkpoint where there is one

	Answered func(split, metric string) *ArmComparison // the difference from the first arm by a study's own rule; nil: there is none
}

// ArmsOf groups runs whose configs differ in nothing but the seed and that read the same data, in order of appearance. Two runs
// of one seed are a setting repeated, not a new seed: the second begins an arm of its own.
func ArmsOf(runs []*record.Run) []ComparedArm {
	var arms []ComparedArm
	settings := map[*record.Run]map[string]string{}
	for i, run := range runs {
		setting, seed := settingOf(run), run.Setting("seed")
		at := slices.IndexFunc(arms, func(a ComparedArm) bool {
			return maps.Equal(settings[a.Runs[0]], setting) && sameData(a.Runs[0], run)
		})
		if at >= 0 && seed != nil && !slices.ContainsFunc(arms[at].Runs, func(r *record.Run) bool { return r.Setting("seed") == seed }) {
			arms[at].Runs, arms[at].Names = append(arms[at].Runs, run), append(arms[at].Names, RunName(i))
			continue
		}
		settings[run] = setting
		arms = append(arms, ComparedArm{Runs: []*record.Run{run}, Names: []string{RunName(i)}})
	}
	for i := range arms {
		arms[i].Name = fmt.Sprint("arm ", i+1) + WithScorer(arms[i].Runs[0])
	}
	return arms
}

// WithScorer is what the name of a run whose selector asks the reader has behind it.
func WithScorer(run *record.Run) string {
	if run.Summary == nil {
		return ""
	}
	return run.Summary.Data.Scorer.With()
}

// settingOf returns the settings of a run but its seed and what changes no result.
func settingOf(run *record.Run) map[string]string {
	setting := map[string]string{}
	record.Flatten(setting, "", run.Tree)
	maps.DeleteFunc(setting, func(key, _ string) bool { return key == "seed" || record.ChangesNoResult(key) })
	return setting
}

// sameData says that nothing is known of other data: files may change behind their names. A run that has not ended tells of none.
func sameData(a, b *record.Run) bool {
	return a.Summary == nil || b.Summary == nil || a.Summary.Data.Fingerprint == b.Summary.Data.Fingerprint
}

// BaselinesOf are the baselines that runs scored, by policy.
func BaselinesOf(runs []*record.Run, split, metric string) []Arm {
	var out []Arm
	for _, policy := range []string{record.PolicyRandom, record.PolicySimilarity, record.PolicyMajority, record.PolicyRecorded,
		record.PolicyInit, record.PolicyBestBeam, record.PolicyOracle, record.PolicyReference} {
		if arm, err := ArmOf(runs, split, metric, policy); err == nil {
			arm.Name = record.StageResult{Policy: policy}.Title()
			top, err := ArmOf(runs, split, "top1_accuracy", policy)
			if policy == record.PolicyRecorded && err == nil && stat.Mean(top.QueryScores()) == 1 {
				arm.Name += " (best first)" // an oracle: no yardstick has this name
			}
			out = append(out, arm)
		}
	}
	return out
}

// ArmYardsticks are the baselines that arms are compared with, as results.YardsticksOf chooses them, and a warning of those that are worse
// than random. The initial policies are not among them: each arm has its own.
func ArmYardsticks(baselines []Arm) (yards []results.Yardstick, warning string) {
	at := func(policy string) int {
		return slices.IndexFunc(baselines, func(a Arm) bool { return a.Name == record.StageResult{Policy: policy}.Title() })
	}
	random := at(record.PolicyRandom)
	var weak []record.StageResult
	for _, y := range results.Yardsticks() {
		i := at(y.Policy)
		if i < 0 || y.Policy == record.PolicyInit || y.Policy == record.PolicyRandom && len(weak) == 0 && len(yards) > 0 {
			continue
		}
		if random >= 0 && i != random {
			if c, err := baselines[i].Against(baselines[random], stats.DefaultOptions()); err == nil && c.Verdict == stats.Worse {
				over := c.Paired
				weak = append(weak, record.StageResult{Policy: y.Policy, Mean: stat.Mean(baselines[i].QueryScores()), OverRandom: &over})
				continue
			}
		}
		yards = append(yards, y)
	}
	return yards, results.WarnBelowRandom(weak)
}

// LevelOf returns the mean of an arm with the standard error over questions, and the standard deviation of its seeds' means.
func (a Arm) LevelOf() (mean, sd string) {
	m, se := a.evaluation().MeanSE()
	sd = "–"
	if seeds := a.SeedMeans(); len(seeds) > 1 && slices.Max(seeds) > slices.Min(seeds) {
		sd = page.Sig(stat.SD(seeds), 2)
	}
	return page.MeanSE(m, se), sd
}

// Cells are those of a comparison, or of none.
func (c *ArmComparison) Cells() (gain, p, effect, verdict string) {
	if c == nil {
		return (*stats.Paired)(nil).Cells()
	}
	return c.Paired.Cells()
}

// ToldOf are the rows of arms on a split by a metric, their names as short as tells them apart; one without such scores has its name
// alone. nil: none has them.
func ToldOf(seeded []ComparedArm, split, metric string) (rows []Told, over string) {
	scored := list.Filter(seeded, func(a ComparedArm) bool { _, err := ArmOf(a.Runs, split, metric, a.Policy); return err == nil })
	if len(scored) == 0 {
		return nil, ""
	}
	rows, over = ArmTables(scored, func(s, m string) bool { return s == split && m == metric }, 0)[0].Told()
	for i, a := range seeded {
		if len(rows) == i || rows[i].Name != a.Name {
			rows = slices.Insert(rows, i, Told{Name: a.Name, Runs: a.Runs})
		}
		if a.Answered != nil {
			rows[i].Difference = cmp.Or(a.Answered(split, metric), rows[i].Difference)
		}
	}
	for i, name := range ShortNames(list.Map(rows, func(r Told) string { return r.Name })) {
		rows[i].Name = name
	}
	return rows, over
}

// OfTwoSeeds says whether an interval is for new seeds by two of them.
func (c *ArmComparison) OfTwoSeeds() bool { return c.Changed > 0 && c.uncertainty.seeds() == 2 }

// TwoSeeds is what a page says of such intervals.
const TwoSeeds = "Two seeds cannot tell what other seeds would do: the seeds' part of such an interval is that of Student's t with one " +
	"degree of freedom, many times the difference between the two. Plan for five."

// ErrorParts says how much of the standard error comes from where, and what so few seeds leave possible beyond their estimate: the
// interval covers that too. of is what the questions are called.
func (c ArmComparison) ErrorParts(of string) string {
	if c.Changed == 0 || c.Seeds < 2 && c.SeedsOf < 2 {
		return ""
	}
	text := fmt.Sprintf(" Standard error from the %s %s, from the seeds %s", of, page.Sig(c.SE, 2), page.Sig(c.SeedSE, 2))
	if most := c.uncertainty.seedsAtMost(); most > c.SeedSE {
		text += fmt.Sprintf("; so few seeds leave up to %s possible, and the interval covers that", page.Sig(most, 2))
	}
	return text + "."
}

// JudgedBy returns the split and metric by which a run is judged: held out from every choice, else val;
// the reward, else what there is.
func JudgedBy(r *record.Run) (split, metric string, ok bool) {
	for _, table := range results.StageTables(r.Evaluations) { // val first, reward first
		if results.PlannedStage(table) < 0 {
			continue
		}
		e := table[0]
		if !ok || !record.HeldOut(split) && record.HeldOut(e.Split) {
			split, metric, ok = e.Split, e.Metric, true
		}
	}
	return split, metric, ok
}

// Judged is JudgedBy of the first run of arms that says so.
func Judged(seeded []ComparedArm) (split, metric string, ok bool) {
	for _, a := range seeded {
		for _, run := range a.Runs {
			if split, metric, ok = JudgedBy(run); ok {
				return split, metric, ok
			}
		}
	}
	return "", "", false
}

// RunName is A, B, …, Z, run 27, ….
func RunName(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return fmt.Sprintf("run %d", i+1)
}
