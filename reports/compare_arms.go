package reports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// comparedArm is runs of one setting among those that are compared.
type comparedArm struct {
	name  string // A, B, …
	runs  []*Run
	names []string // of the runs
}

// armsOf groups runs whose configs differ in nothing but the seed, in order of appearance. Two runs of
// one seed are a setting repeated, not a new seed: the second begins an arm of its own.
func armsOf(runs []*Run) []comparedArm {
	var arms []comparedArm
	var settings []map[string]string
	for i, run := range runs {
		setting := map[string]string{}
		flatten(setting, "", run.tree)
		seed, seeded := setting["seed"]
		delete(setting, "seed")
		maps.DeleteFunc(setting, func(key, _ string) bool { return key == "hydra" || strings.HasPrefix(key, "hydra.") })
		at := slices.IndexFunc(settings, func(s map[string]string) bool { return maps.Equal(s, setting) })
		if at >= 0 && seeded && !slices.ContainsFunc(arms[at].runs, func(r *Run) bool { return fmt.Sprint(r.setting("seed")) == seed }) {
			arms[at].runs, arms[at].names = append(arms[at].runs, run), append(arms[at].names, runName(i))
			continue
		}
		settings = append(settings, setting)
		arms = append(arms, comparedArm{runs: []*Run{run}, names: []string{runName(i)}})
	}
	for i := range arms {
		arms[i].name = "arm " + runName(i)
	}
	return arms
}

// seeded says whether some arm has several runs.
func seededArms(arms []comparedArm) bool {
	return slices.ContainsFunc(arms, func(a comparedArm) bool { return len(a.runs) > 1 })
}

// armRow is a line of a table of arms.
type armRow struct {
	name       string
	arm        Arm
	similarity *ArmComparison // over similarity, or the majority answer
	initial    *ArmComparison // over the initial policies of the same runs
	first      *ArmComparison // minus the first arm
	refused    string         // why there is no comparison
}

// made are the comparisons of a line.
func (r armRow) made() []*ArmComparison {
	return slices.DeleteFunc([]*ArmComparison{r.similarity, r.initial, r.first}, func(c *ArmComparison) bool { return c == nil })
}

// comparisons is how many a table makes.
func (t armTable) comparisons() int {
	n := 0
	for _, r := range t.rows {
		n += len(r.made())
	}
	return n
}

// armTable compares arms on one split by one metric, with the baselines of the first arm below.
type armTable struct {
	split, metric string
	reference     string // what the first arm is called by the others
	over          string // similarity, or the majority answer
	rows          []armRow
	baselines     []Arm
}

// armTables makes a table for every split and metric that at least two arms share, or of the only arm.
// All comparisons of all tables are corrected together, or for atLeast so many, where the arms were chosen by such
// comparisons before. A nil want means all tables.
func armTables(arms []comparedArm, want func(split, metric string) bool, atLeast int) []armTable {
	type key struct{ split, metric string }
	var keys []key
	for _, run := range arms[0].runs {
		for _, table := range stageTables(run.Evaluations) {
			k := key{table[0].Split, table[0].Metric}
			if !slices.Contains(keys, k) && (want == nil || want(k.split, k.metric)) {
				keys = append(keys, k)
			}
		}
	}
	opt := DefaultStatsOptions().forTests(atLeast)
	var tables []armTable
	var family []*ArmComparison
	for _, k := range keys {
		t := armTable{split: k.split, metric: k.metric, reference: arms[0].name}
		for _, a := range arms {
			arm, err := ArmOf(a.runs, k.split, k.metric, "")
			if err != nil {
				continue
			}
			row := armRow{name: a.name, arm: arm}
			against := func(policy string) *ArmComparison {
				if reference, err := ArmOf(a.runs, k.split, k.metric, policy); err == nil {
					if c, err := arm.Against(reference, opt); err == nil {
						return &c
					}
				}
				return nil
			}
			for _, y := range yardsticks() {
				if y.policy != policyInit && row.similarity == nil {
					if row.similarity = against(y.policy); row.similarity != nil {
						t.over = y.short
					}
				}
			}
			row.initial = against(policyInit)
			if len(t.rows) > 0 {
				if c, err := arm.Against(t.rows[0].arm, opt); err != nil {
					row.refused = "not the same questions"
				} else {
					row.first = &c
				}
			}
			t.rows = append(t.rows, row)
		}
		if len(t.rows) < min(2, len(arms)) {
			continue
		}
		for _, row := range t.rows {
			family = append(family, row.made()...)
		}
		t.baselines = baselinesOf(arms[0].runs, k.split, k.metric)
		tables = append(tables, t)
	}
	holmArms(family, max(len(family), atLeast))
	return tables
}

// baselinePolicies are the policies that a table shows below the trained ones.
func baselinePolicies() []string {
	return []string{policyRandom, policySimilarity, policyMajority, policyRecorded, policyInit, policyBestBeam, policyOracle, policyReference}
}

// baselinesOf are the baselines that runs scored, by policy.
func baselinesOf(runs []*Run, split, metric string) []Arm {
	var out []Arm
	for _, policy := range baselinePolicies() {
		if arm, err := ArmOf(runs, split, metric, policy); err == nil {
			arm.Name = StageResult{Policy: policy}.title()
			out = append(out, arm)
		}
	}
	return out
}

// level is an arm's mean with the standard error over questions, and the spread of its seeds' means.
func (a Arm) level() (mean, spread string) {
	m, se := newGrouping(a.Clusters).meanSE(a.QueryScores())
	var seeds []float64
	for _, scores := range a.Scores {
		seeds = append(seeds, meanOf(scores))
	}
	spread = "–"
	if len(seeds) > 1 && slices.Max(seeds) > slices.Min(seeds) {
		spread = fmt.Sprintf("%.4f", sdOf(seeds))
	}
	return fmt.Sprintf("%.4f ± %.4f", m, se), spread
}

// armCells write a comparison as its interval, corrected p-value, effect size and verdict.
func armCells(c *ArmComparison) (gain, p, effect, verdict string) {
	switch {
	case c == nil:
		return "–", "–", "–", ""
	case c.Changed == 0:
		return "0", "–", "–", "same scores"
	}
	return fmt.Sprintf("%s [%s, %s]", fixed(c.Mean, 4), fixed(c.Interval.Low, 4), fixed(c.Interval.High, 4)),
		strings.TrimPrefix(pValue(c.PHolm), "= "), fixed(c.Effect, 2), verdictCell(c.shown())
}

func (t armTable) write(d *document) {
	d.heading(2, "%s on %s", capital(t.metric), plain(t.split))
	t.writeTable(d)
}

func (t armTable) writeTable(d *document) {
	header := []string{"arm", ">seeds", ">mean ± SE", ">sd over seeds"}
	if t.over != "" {
		header = append(header, ">gain over "+t.over, "verdict")
	}
	started := slices.ContainsFunc(t.rows, func(r armRow) bool { return r.initial != nil })
	if started {
		header = append(header, ">gain over initial policy", "verdict")
	}
	if len(t.rows) > 1 {
		header = append(header, ">minus "+t.reference, ">p (Holm)", ">effect", "verdict")
	}
	var rows [][]string
	var sentences []string
	for _, r := range t.rows {
		mean, spread := r.arm.level()
		row := []string{strings.ReplaceAll(r.name, "|", `\|`), fmt.Sprint(len(r.arm.Seeds)), mean, spread}
		if t.over != "" {
			gain, _, _, verdict := armCells(r.similarity)
			row = append(row, gain, verdict)
		}
		if started {
			gain, _, _, verdict := armCells(r.initial)
			row = append(row, gain, verdict)
		}
		if len(t.rows) == 1 {
			rows = append(rows, row)
			continue
		}
		difference, p, effect, verdict := armCells(r.first)
		if r.refused != "" {
			verdict = r.refused
			sentences = append(sentences, fmt.Sprintf("%s and %s were not scored on the same questions: no verdict.", capital(r.name), t.reference))
		}
		rows = append(rows, append(row, difference, p, effect, verdict))
		if r.first != nil {
			sentences = append(sentences, capital(r.first.Sentence(r.name, t.reference, t.metric))+"."+r.first.spreads())
		}
	}
	for _, b := range t.baselines {
		mean, spread := b.level()
		row := []string{b.Name, "", mean, spread}
		for len(row) < len(header) {
			row = append(row, "")
		}
		rows = append(rows, row)
	}
	d.table(header, rows)
	if len(sentences) > 0 {
		d.list(sentences...)
	}
}

// spreads says how much of the standard error comes from where.
func (c ArmComparison) spreads() string {
	if c.Changed == 0 || c.Seeds < 2 && c.SeedsOf < 2 {
		return ""
	}
	return fmt.Sprintf(" Standard error from the questions %.4f, from the seeds %.4f.", c.QuestionSE, c.SeedSE)
}
