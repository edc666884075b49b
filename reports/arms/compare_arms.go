package arms

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

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
		arms[i].Name = fmt.Sprint("arm ", i+1)
		if s := arms[i].Runs[0].Summary; s != nil {
			arms[i].Name += s.Data.Scorer.With()
		}
	}
	return arms
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

// armRow is a line of a table of arms.
type armRow struct {
	name       string
	arm        Arm
	similarity *ArmComparison // over similarity, the majority answer, or random
	initial    *ArmComparison // over the initial policies of the same runs
	first      *ArmComparison // minus the first arm
	refused    Refused
	runs       []*record.Run
}

// untrained says in a sentence of which runs the best policy is the initial one because no epoch was within checkpoint.best.kl_max:
// what they trained is not what the line compares.
func (r armRow) untrained() string {
	n, why := 0, ""
	for _, run := range r.runs {
		s := run.Summary
		if s == nil {
			s, _ = record.ReadSummary(run.Dir) // a run that has not ended has none
		}
		if s != nil && s.Best.RuledOut() != "" {
			n, why = n+1, s.Best.RuledOut()
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s is shown with its initial policy, not with a trained one, in %d of %s: %s.", page.Capital(r.name),
		n, page.Plural(len(r.runs), "run"), page.Plain(why))
}

// Made are the comparisons of a line.
func (r armRow) Made() []*ArmComparison {
	return slices.DeleteFunc([]*ArmComparison{r.similarity, r.initial, r.first}, func(c *ArmComparison) bool { return c == nil })
}

// Made are the comparisons of a table.
func (t ArmTable) Made() (all []*ArmComparison) {
	for _, r := range t.Rows {
		all = append(all, r.Made()...)
	}
	for _, g := range t.split {
		all = append(all, g.own(t.Rows)...)
	}
	return all
}

// Differences are those of the table's arms from its first one, by name, in its order.
func (t ArmTable) Differences() iter.Seq2[string, *ArmComparison] {
	return func(yield func(string, *ArmComparison) bool) {
		for _, r := range t.Rows {
			if r.first != nil && !yield(r.name, r.first) {
				return
			}
		}
	}
}

// ArmTable compares arms on one split by one metric, with the baselines of the first arm below.
type ArmTable struct {
	Split, Metric string
	Reference     string // what the first arm is called by the others
	over          string // similarity, the majority answer, or random where those are worse
	warning       string // of baselines that are worse than random; "": none is
	Rows          []armRow
	baselines     []Arm
	split         []threeTerms
	unsplit       string // why a gain is not split
}

// askedElsewhere refuses arms of which a question's own rule says how they differ.
var askedElsewhere = Refused{"see the question", "are sides of the question above, which has its own rule"}

// ArmTables makes a table for every split and metric that at least two arms share, or of the only arm.
// All comparisons of all tables are corrected together, or for atLeast so many, where the arms were chosen by such
// comparisons before. A nil want means all tables.
func ArmTables(arms []ComparedArm, want func(split, metric string) bool, atLeast int) []ArmTable {
	type key struct{ split, metric string }
	var keys []key
	for _, run := range arms[0].Runs {
		for _, table := range results.StageTables(run.Evaluations) {
			k := key{table[0].Split, table[0].Metric}
			if !slices.Contains(keys, k) && (want == nil || want(k.split, k.metric)) {
				keys = append(keys, k)
			}
		}
	}
	opt := stats.DefaultOptions().ForTests(float64(atLeast))
	var tables []ArmTable
	var family []*ArmComparison
	for _, k := range keys {
		t := ArmTable{Split: k.split, Metric: k.metric, Reference: arms[0].Name, baselines: BaselinesOf(arms[0].Runs, k.split, k.metric)}
		var yards []results.Yardstick
		yards, t.warning = ArmYardsticks(t.baselines)
		for _, a := range arms {
			arm, err := ArmOf(a.Runs, k.split, k.metric, a.Policy)
			if err != nil {
				continue
			}
			row := armRow{name: a.Name, arm: arm, runs: a.Runs}
			against := func(policy string) *ArmComparison {
				if reference, err := ArmOf(a.Runs, k.split, k.metric, policy); err == nil {
					if c, err := arm.unsettled(reference, opt); err == nil {
						return &c
					}
				}
				return nil
			}
			for _, y := range yards {
				if row.similarity == nil {
					if row.similarity = against(y.Policy); row.similarity != nil {
						t.over = y.Short
					}
				}
			}
			row.initial = against(record.PolicyInit)
			if len(t.Rows) > 0 {
				row.refused = OtherRewards(a.Runs[0], t.Rows[0].runs[0], k.split, k.metric)
				if a.Asked != "" && a.Asked == arms[0].Asked && t.Rows[0].name == arms[0].Name {
					row.refused = askedElsewhere
				}
				if c, err := arm.unsettled(t.Rows[0].arm, opt); err != nil {
					row.refused = OtherQuestions()
				} else if row.refused.Cell == "" {
					row.first = &c
				}
			}
			t.Rows = append(t.Rows, row)
		}
		if len(t.Rows) < min(2, len(arms)) {
			continue
		}
		t.splitGains(opt)
		family, tables = append(family, t.Made()...), append(tables, t)
	}
	holmArms(family, max(len(family), atLeast))
	return tables
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
	m, se := stats.NewGrouping(a.Clusters).MeanSE(a.QueryScores())
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

func (t ArmTable) Write(d *page.Document) {
	d.Heading(2, "%s on %s", page.Capital(results.MetricName(t.Metric)), page.Plain(t.Split))
	t.WriteTable(d)
}

// armGain is a column of gains.
type armGain struct {
	over string
	of   func(armRow) *ArmComparison
}

// gains are the columns of a table, the first baseline's first, as results.YardsticksBy has them.
func (t ArmTable) gains() (out []armGain) {
	if t.over != "" {
		out = append(out, armGain{t.over, func(r armRow) *ArmComparison { return r.similarity }})
	}
	if slices.ContainsFunc(t.Rows, func(r armRow) bool { return r.initial != nil }) {
		out = append(out, armGain{"initial policy", func(r armRow) *ArmComparison { return r.initial }})
	}
	if !slices.ContainsFunc(t.baselines, func(b Arm) bool { return b.Name == record.PolicySimilarity }) {
		slices.Reverse(out)
	}
	return out
}

func (t ArmTable) WriteTable(d *page.Document) {
	header := []string{"arm", ">seeds", ">mean ± SE", ">sd over seeds"}
	gains := t.gains()
	for _, g := range gains {
		header = append(header, ">gain over "+g.over, "verdict")
	}
	if len(t.Rows) > 1 {
		header = append(header, ">minus "+t.Reference, ">p (Holm)", ">effect", "verdict")
	}
	var rows [][]string
	var sentences []string
	if t.warning != "" {
		sentences = append(sentences, t.warning)
	}
	if slices.ContainsFunc(t.Rows, func(r armRow) bool { return slices.ContainsFunc(r.Made(), (*ArmComparison).OfTwoSeeds) }) {
		sentences = append(sentences, TwoSeeds)
	}
	var look stats.Look
	for _, r := range t.Rows {
		if look = look.Later(r.arm.Look); r.first != nil {
			look = look.Later(r.first.Look) // which is shared with the looks before it
		}
	}
	if look != (stats.Look{}) {
		sentences = append(sentences, page.Capital(look.Spent()))
	}
	for _, r := range t.Rows {
		if said := r.untrained(); said != "" {
			sentences = append(sentences, said)
		}
		mean, sd := r.arm.LevelOf()
		row := []string{strings.ReplaceAll(r.name, "|", `\|`), fmt.Sprint(len(r.arm.Seeds)), mean, sd}
		for _, g := range gains {
			gain, _, _, verdict := g.of(r).Cells()
			row = append(row, gain, verdict)
		}
		if len(t.Rows) == 1 {
			rows = append(rows, row)
			continue
		}
		difference, p, effect, verdict := r.first.Cells()
		if r.refused.Cell != "" {
			verdict = r.refused.Cell
			sentences = append(sentences, r.refused.Sentence(page.Capital(r.name), t.Reference))
		}
		rows = append(rows, append(row, difference, p, effect, verdict))
		if r.first != nil {
			text := page.Capital(r.first.Sentence(r.name, t.Reference, results.MetricName(t.Metric)))
			if r.first.Changed == 0 {
				text += bestOf(slices.Concat(r.runs, t.Rows[0].runs))
			}
			sentences = append(sentences, text+"."+r.first.ErrorParts("questions"))
		}
	}
	for _, b := range t.shared() {
		mean, sd := b.LevelOf()
		rows = append(rows, append([]string{b.Name, "", mean, sd}, make([]string, len(header)-4)...))
	}
	d.Table(header, rows)
	for _, note := range stats.Notes(rows) {
		d.Paragraph("%s", note)
	}
	if len(sentences) > 0 {
		d.List(sentences...)
	}
	for _, g := range t.split {
		g.write(d, t.Metric)
	}
	d.Paragraph("%s", t.unsplit)
}

// shared are the baselines of the first arm that are everybody's.
func (t ArmTable) shared() []Arm {
	if slices.ContainsFunc(t.Rows, func(r armRow) bool { return r.refused.Why != "" && r.refused != askedElsewhere }) {
		return nil // an arm was not scored as it was
	}
	return Everybodys(t.baselines, list.Map(t.Rows, func(r armRow) []*record.Run { return r.runs }), t.Split, t.Metric)
}

// Everybodys are the baselines of one arm that others have too: none that scored otherwise beside the runs of one by the same seed, by
// other shots or from another start.
func Everybodys(baselines []Arm, arms [][]*record.Run, split, metric string) []Arm {
	return list.Filter(baselines, func(b Arm) bool {
		return !slices.ContainsFunc(arms, func(runs []*record.Run) bool {
			return slices.ContainsFunc(BaselinesOf(runs, split, metric), b.differs)
		})
	})
}

// Told is a row of a table of arms: its score, its gain over the first baseline, and its difference from the first arm; nil of a baseline.
type Told struct {
	Name string
	Runs []*record.Run // of an arm
	Arm
	Gain, Difference *ArmComparison
}

// Told returns the rows with the baselines below, and over what their gains are.
func (t ArmTable) Told() (rows []Told, over string) {
	gain := armGain{of: func(armRow) *ArmComparison { return nil }}
	for _, g := range t.gains() {
		if gain.over == "" || g.over == "initial policy" {
			gain = g
		}
	}
	for _, r := range t.Rows {
		rows = append(rows, Told{r.name, r.runs, r.arm, gain.of(r), r.first})
	}
	return append(rows, list.Map(t.shared(), func(b Arm) Told { return Told{Name: b.Name, Arm: b} })...), gain.over
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

// Highest returns the arm with the highest mean, the first of several, with that mean and the one of the first arm.
func (t ArmTable) Highest() (name string, highest, first float64) {
	for i, r := range t.Rows {
		mean := stat.Mean(r.arm.QueryScores())
		if i == 0 {
			first = mean
		}
		if i == 0 || mean > highest {
			name, highest = r.name, mean
		}
	}
	return name, highest, first
}

// Apart says how many of the arms behind the first one are worse than it, and how many there are.
func (t ArmTable) Apart() (apart, others int) {
	behind := t.Rows[1:]
	return list.Count(behind, func(r armRow) bool { return r.first != nil && r.first.Verdict == stats.Worse }), len(behind)
}

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
