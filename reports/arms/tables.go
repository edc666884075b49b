package arms

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// ArmTable compares arms, or single runs, on one split by one metric, with baselines below.
type ArmTable struct {
	Split, Metric string
	Reference     string // what the first line is called by the others
	Rows          []armRow
	lone          bool   // of single runs: each gain is a question of its own, and a line says at which step its policy was saved
	also          string // of single runs: another metric with the same numbers, where the reward is the accuracy
	yards         []results.Yardstick
	warning       string // of baselines that are worse than random; "": none is
	baselines     []Arm
	split         []threeTerms
	unsplit       string // why a gain is not split
}

// Told is a row of a table of arms: its score, its gain over the first baseline, and its difference from the first arm; nil of a baseline.
type Told struct {
	Name string
	Runs []*record.Run // of an arm
	Arm
	Gain, Difference *ArmComparison
}

// armRow is a line of a table of arms, or of a baseline, which has no runs.
type armRow struct {
	Told
	policy  string           // of a single run: what it ended with
	step    int              // of a single run: optimizer steps that its policy took; -1: not recorded
	gains   []*ArmComparison // over the table's yardsticks
	refused Refused
}

// untrained says in a sentence of which runs the best policy is the initial one because no epoch was within checkpoint.best.kl_max:
// what they trained is not what the line compares.
func (r armRow) untrained() string {
	n, why := 0, ""
	for _, run := range r.Runs {
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
	return fmt.Sprintf("%s is shown with its initial policy, not with a trained one, in %d of %s: %s.", page.Capital(r.Name),
		n, page.Plural(len(r.Runs), "run"), page.Plain(why))
}

// Made are the comparisons of a line.
func (r armRow) Made() []*ArmComparison {
	return list.Filter(append(slices.Clone(r.gains), r.Difference), func(c *ArmComparison) bool { return c != nil })
}

// Made are the comparisons of a table that are corrected together.
func (t ArmTable) Made() (all []*ArmComparison) {
	for _, r := range t.Rows {
		if t.lone {
			r.gains = nil // each is settled alone
		}
		all = append(all, r.Made()...)
	}
	for _, g := range t.split {
		all = append(all, g.own(t.Rows)...)
	}
	return all
}

// Differences are the lines that were compared with the first one.
func (t ArmTable) Differences() []armRow {
	return list.Filter(t.Rows, func(r armRow) bool { return r.Difference != nil })
}

// askedElsewhere refuses arms of which a question's own rule says how they differ.
var askedElsewhere = Refused{"see the question", "are sides of the question above, which has its own rule"}

// ArmTables makes a table for every split and metric that at least two arms share, or of the only arm.
// All comparisons of all tables are corrected together, or for atLeast so many, where the arms were chosen by such
// comparisons before. A nil want means all tables.
func ArmTables(arms []ComparedArm, want func(split, metric string) bool, atLeast int) []ArmTable {
	return tablesOf(arms, want, atLeast, false)
}

// RunTables makes a table for every split and metric that at least two of some single runs share. The differences from the first run of
// all tables are corrected together.
func RunTables(runs []ComparedArm) []ArmTable { return tablesOf(runs, nil, 0, true) }

func tablesOf(arms []ComparedArm, want func(split, metric string) bool, atLeast int, lone bool) (tables []ArmTable) {
	type key struct{ split, metric string }
	var keys []key
	for i, a := range arms {
		if i > 0 && !lone {
			break
		}
		for _, run := range a.Runs {
			for _, table := range results.StageTables(run.Evaluations) {
				if k := (key{table[0].Split, table[0].Metric}); want == nil || want(k.split, k.metric) {
					keys = append(keys, k)
				}
			}
		}
	}
	opt := stats.DefaultOptions().ForTests(float64(atLeast))
	var family []*ArmComparison
	for _, k := range list.Unique(keys) {
		t := ArmTable{Split: k.split, Metric: k.metric, lone: lone}
		t.measureBy(arms)
		t.compare(arms, opt)
		if n := len(tables) - 1; n >= 0 && lone && t.repeats(tables[n]) {
			tables[n].also = t.Metric
		} else if len(t.Rows) >= min(2, len(arms)) {
			t.splitGains(opt)
			family, tables = append(family, t.Made()...), append(tables, t)
		}
	}
	holmArms(family, max(len(family), atLeast))
	return tables
}

// measureBy finds the baselines, those of the first arm or of the first run that has some, and which of them have columns: of arms
// the first one and their own starts; of runs all, and their own starts where no similarity is.
func (t *ArmTable) measureBy(arms []ComparedArm) {
	for _, a := range arms {
		if t.baselines = BaselinesOf(a.Runs, t.Split, t.Metric); len(t.baselines) > 0 || !t.lone {
			break
		}
	}
	if t.yards, t.warning = ArmYardsticks(t.baselines); !t.lone {
		t.yards = t.yards[:min(1, len(t.yards))]
	}
	own := results.YardsticksBy(false)[:1]
	started := slices.ContainsFunc(arms, func(a ComparedArm) bool {
		_, err := ArmOf(a.Runs, t.Split, t.Metric, own[0].Policy)
		return err == nil
	})
	switch similarity := slices.ContainsFunc(t.baselines, func(b Arm) bool { return b.Name == record.PolicySimilarity }); {
	case !started:
	case !similarity: // as results.YardsticksBy has them
		t.yards = append(own, t.yards...)
	case !t.lone:
		t.yards = append(t.yards, own...)
	}
}

// gain is the column of the gain that a table is told by, that over the initial policies where there is one; -1: there is no column.
func (t ArmTable) gain() int {
	own := slices.IndexFunc(t.yards, func(y results.Yardstick) bool { return y.Policy == record.PolicyInit })
	return max(own, min(0, len(t.yards)-1))
}

// compare makes the lines of the arms that have such scores.
func (t *ArmTable) compare(arms []ComparedArm, opt stats.Options) {
	for _, a := range arms {
		arm, err := ArmOf(a.Runs, t.Split, t.Metric, a.Policy)
		if err != nil {
			continue
		}
		row, compared := armRow{Told: Told{Name: a.Name, Runs: a.Runs, Arm: arm}}, arm.unsettled
		if t.lone {
			e, _ := results.EvaluationOf(a.Runs[0], t.Split, t.Metric, a.Policy) // as ArmOf found
			row.policy, row.step = record.StageResult{Policy: e.Policy, Phase: e.Phase, Epoch: e.Epoch}.Title(), a.Runs[0].StepAt(e)
			compared = arm.Against // settled alone: a page of runs is about their differences
		}
		row.gains = make([]*ArmComparison, len(t.yards))
		for i, y := range t.yards {
			if reference, err := ArmOf(a.Runs, t.Split, t.Metric, y.Policy); err == nil {
				if c, err := compared(reference, opt); err == nil {
					row.gains[i] = &c
				}
			}
		}
		if at := t.gain(); at >= 0 {
			row.Gain = row.gains[at]
		}
		if len(t.Rows) == 0 {
			t.Reference = a.Name
		} else {
			row.refused = OtherRewards(a.Runs[0], t.Rows[0].Runs[0], t.Split, t.Metric)
			if a.Asked != "" && a.Asked == arms[0].Asked && t.Reference == arms[0].Name {
				row.refused = askedElsewhere
			}
			if c, err := arm.unsettled(t.Rows[0].Arm, opt); err != nil {
				row.refused = OtherQuestions()
			} else if row.refused.Cell == "" {
				row.Difference = &c
			}
		}
		t.Rows = append(t.Rows, row)
	}
}

// repeats says whether a table has the numbers of another one of its split.
func (t ArmTable) repeats(other ArmTable) bool {
	return t.Split == other.Split && slices.EqualFunc(t.Rows, other.Rows, func(a, b armRow) bool {
		a.Metric, a.Range = b.Metric, b.Range
		return reflect.DeepEqual(a, b)
	})
}

func (t ArmTable) Write(d *page.Document) {
	metrics := results.MetricName(t.Metric)
	if t.also != "" {
		metrics += " and " + results.MetricName(t.also)
	}
	d.Heading(2, "%s on %s", page.Capital(metrics), page.Plain(t.Split))
	t.WriteTable(d)
}

// lines are those of the arms, with the baselines below: their means, and nothing that they were not compared with.
func (t ArmTable) lines() *page.Lines[armRow] {
	table := page.LinesOf(slices.Concat(t.Rows, t.shared()))
	compared := func(head string, cell func(armRow) string) {
		table.Column(head, func(r armRow) string {
			if len(r.Runs) == 0 {
				return ""
			}
			return cell(r)
		})
	}
	mean := func(r armRow) string { mean, _ := r.LevelOf(); return mean }
	if t.lone {
		compared("run", func(r armRow) string { return r.Name })
		table.Column("policy", func(r armRow) string { return page.Plain(cmp.Or(r.policy, r.Name)) })
		if slices.ContainsFunc(t.Rows, func(r armRow) bool { return r.step > 0 }) {
			compared(">at step", func(r armRow) string {
				if r.step < 0 {
					return "–"
				}
				return page.Thousands(r.step)
			})
		}
		table.Column(">questions", func(r armRow) string { return page.Thousands(len(r.QueryIDs)) })
		table.Column(">mean ± SE", mean)
	} else {
		table.Column("arm", func(r armRow) string { return strings.ReplaceAll(r.Name, "|", `\|`) })
		compared(">seeds", func(r armRow) string { return fmt.Sprint(len(r.Seeds)) })
		table.Column(">mean ± SE", mean)
		table.Column(">sd over seeds", func(r armRow) string { _, sd := r.LevelOf(); return sd })
	}
	for i, y := range t.yards {
		compared(">gain over "+y.Short, func(r armRow) string { gain, _, _, _ := r.gains[i].Cells(); return gain })
		if !t.lone {
			compared("verdict", func(r armRow) string { _, _, _, verdict := r.gains[i].Cells(); return verdict })
		}
	}
	if len(t.Rows) > 1 {
		compared(">minus "+t.Reference, func(r armRow) string { difference, _, _, _ := r.Difference.Cells(); return difference })
		compared(">p (Holm)", func(r armRow) string { _, p, _, _ := r.Difference.Cells(); return p })
		compared(">effect", func(r armRow) string { _, _, effect, _ := r.Difference.Cells(); return effect })
		compared("verdict", func(r armRow) string {
			_, _, _, verdict := r.Difference.Cells()
			return cmp.Or(r.refused.Cell, verdict)
		})
	}
	return table
}

func (t ArmTable) WriteTable(d *page.Document) {
	table := t.lines()
	d.Table(table.Header, table.Rows)
	for _, note := range stats.Notes(table.Rows) {
		d.Paragraph("%s", note)
	}
	var notes, verdicts []string
	if t.warning != "" {
		notes = append(notes, t.warning)
	}
	if slices.ContainsFunc(t.Rows, func(r armRow) bool { return slices.ContainsFunc(r.Made(), (*ArmComparison).OfTwoSeeds) }) {
		notes = append(notes, TwoSeeds)
	}
	var look stats.Look
	for _, r := range t.Rows {
		if look = look.Later(r.Look); r.Difference != nil {
			look = look.Later(r.Difference.Look) // which is shared with the looks before it
		}
		if said := r.untrained(); said != "" && !t.lone { // a line of a run names its policy
			verdicts = append(verdicts, said)
		}
		if r.refused.Cell != "" {
			verdicts = append(verdicts, r.refused.Sentence(page.Capital(r.Name), t.Reference))
		}
		if r.Difference != nil {
			verdicts = append(verdicts, t.sentence(r))
		}
	}
	if look != (stats.Look{}) {
		notes = append(notes, page.Capital(look.Spent()))
	}
	if t.lone { // its verdicts are few and stand first
		notes, verdicts = verdicts, notes
	}
	if said := slices.Concat(notes, verdicts); len(said) > 0 {
		d.List(said...)
	}
	for _, g := range t.split {
		g.write(d, t.Metric)
	}
	d.Paragraph("%s", t.unsplit)
}

// sentence says how a line differs from the first one.
func (t ArmTable) sentence(r armRow) string {
	c, metric := r.Difference, results.MetricName(t.Metric)
	if t.lone {
		against := t.Reference
		if t.drawn(r) {
			against += " (of these two runs; other seeds may differ)"
		}
		return page.Capital(c.Paired.Sentence(r.Name, against, metric)) + "."
	}
	text := page.Capital(c.Sentence(r.Name, t.Reference, metric))
	if c.Changed == 0 {
		text += bestOf(slices.Concat(r.Runs, t.Rows[0].Runs))
	}
	return text + "." + c.ErrorParts("questions")
}

// drawn says whether the comparison of a single run has a policy that was trained, one draw of its seed.
func (t ArmTable) drawn(r armRow) bool { return r.step != 0 || t.Rows[0].step != 0 }

// Drawn says whether any comparison of single runs has such a policy.
func (t ArmTable) Drawn() bool { return slices.ContainsFunc(t.Differences(), t.drawn) }

// shared are the baselines that all have: none that scored otherwise beside the runs of another line by the same seed, by other shots or
// from another start.
func (t ArmTable) shared() []armRow {
	if slices.ContainsFunc(t.Rows, func(r armRow) bool { return r.refused.Why != "" && r.refused != askedElsewhere }) {
		return nil // an arm was not scored as it was
	}
	theirs := slices.Concat(list.Map(t.Rows, func(r armRow) []Arm { return BaselinesOf(r.Runs, t.Split, t.Metric) })...)
	all := list.Filter(t.baselines, func(b Arm) bool { return !slices.ContainsFunc(theirs, b.differs) })
	return list.Map(all, func(b Arm) armRow { return armRow{Told: Told{Name: b.Name, Arm: b}} })
}

// Told returns the rows with the baselines below, and over what their gains are.
func (t ArmTable) Told() (rows []Told, over string) {
	if at := t.gain(); at >= 0 {
		over = t.yards[at].Short
	}
	return list.Map(slices.Concat(t.Rows, t.shared()), func(r armRow) Told { return r.Told }), over
}

// Apart says how many of the arms behind the first one are worse than it, and how many there are.
func (t ArmTable) Apart() (apart, others int) {
	return list.Count(t.Differences(), func(r armRow) bool { return r.Difference.Verdict == stats.Worse }), len(t.Rows) - 1
}
