package sweepreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

type answer struct {
	sweeps.StudyQuestion
	condition     *condition
	split         string
	what, against string // labels
	c             *arms.ArmComparison
	refused       string                // why there is no comparison
	others        []*arms.ArmComparison // by the other measures; nil: it cannot be made
	effect        float64               // a difference that is worth having; 0: nobody said
}

// measure is a way to judge an arm: on a split, by a metric, the last policy or the best checkpoint.
type measure struct {
	name          string
	split, metric string // "" = the question's
	best          bool
}

// measures are those beside the planned one, by which a reader may doubt it.
func (v *View) measures() []measure {
	out := []measure{{name: "best checkpoint by validation", best: true}, {name: "accuracy", metric: "accuracy"}}
	if v.split() != "val" {
		out = append(out, measure{name: "reward on val", split: "val", metric: "reward"})
	}
	return out
}

// answer compares what every question asks, once by the planned measure and once by each of the others, and
// corrects each family of comparisons for its size (Holm).
func (v *View) answer() {
	measures := v.measures()
	families := make([][]*arms.ArmComparison, 1+len(measures))
	for _, c := range v.conditions {
		for _, q := range v.Opt.Study.Questions {
			q.Metric = cmp.Or(q.Metric, v.score())
			a := &answer{StudyQuestion: q, condition: c, split: cmp.Or(q.Split, v.split())}
			if v.Opt.Ask != nil {
				a.effect = v.Opt.Ask.Effect
			}
			a.what, a.against = v.label(q.Arm), v.label(q.Against)
			a.c, a.refused = v.compare(c, q.Arm, q.Against, a.split, q.Metric, false)
			a.refused = v.within(a.refused)
			if a.c != nil {
				families[0] = append(families[0], a.c)
			}
			for i, m := range measures {
				other, _ := v.compare(c, q.Arm, q.Against, cmp.Or(m.split, a.split), cmp.Or(m.metric, q.Metric), m.best)
				if other != nil {
					families[1+i] = append(families[1+i], other)
				}
				a.others = append(a.others, other)
			}
			v.answers = append(v.answers, a)
		}
	}
	for _, family := range families {
		arms.HolmArms(family)
	}
}

// label is what a sentence calls an arm or a baseline.
func (v *View) label(name string) string {
	if a := v.Opt.Study.Arm(name); a != nil {
		return a.Label
	}
	words := map[string]string{record.PolicyInit: "the initial policy", record.PolicyMajority: "the majority answer",
		record.PolicyBestBeam: "the best recorded beam", record.PolicyOracle: "the oracle", record.PolicyReference: "the target answers"}
	return cmp.Or(words[name], name)
}

// compare compares an arm with another or with a baseline, seed by seed over the seeds that both have. An arm
// is judged by the policy that its runs ended with: no checkpoint is chosen, so that more epochs are no more
// draws. best takes the checkpoint that validation prefers instead.
func (v *View) compare(c *condition, name, against, split, metric string, best bool) (*arms.ArmComparison, string) {
	this, other := c.arm(name), c.arm(against)
	switch {
	case this == nil || len(this.runs) == 0:
		return nil, "no run of " + v.label(name) + " is done"
	case other == nil && v.Opt.Study.Arm(against) != nil:
		return nil, "no run of " + v.label(against) + " is done"
	}
	policy := func(s *setting) string {
		if best {
			return record.PolicyBest
		}
		return s.last()
	}
	of, ofPolicy := other, against
	if other != nil {
		ofPolicy = policy(other)
	} else if of = v.baseline(this, against); of == nil { // a baseline
		return nil, "no arm with the selector of " + this.label() + " starts untrained on its data"
	}
	seeds := slices.DeleteFunc(this.seeds(), func(seed int64) bool { return !slices.Contains(of.seeds(), seed) })
	switch {
	case len(of.runs) == 0:
		return nil, "no run of " + of.label() + " is done"
	case len(seeds) == 0:
		return nil, "no seed of both is done"
	}
	var stage stats.Stage
	if ask := v.Opt.Ask; ask != nil { // seeds beyond the last stage are not judged yet
		var n int
		if n, stage = stats.StageAt(len(seeds), ask.MaxSeeds); n == 0 {
			return nil, "two seeds of both are the first that are judged"
		}
		seeds = seeds[:n]
	}
	a, err := arms.ArmOf(this.withSeeds(seeds), split, metric, policy(this))
	if err != nil {
		return nil, err.Error()
	}
	b, err := arms.ArmOf(of.withSeeds(seeds), split, metric, ofPolicy)
	if err != nil {
		return nil, err.Error()
	}
	a.Name, b.Name = v.label(name), v.label(against)
	if other := arms.OtherRewards(this.runs[0], of.runs[0], split, metric); other.Cell != "" {
		return nil, "the two " + other.Why
	}
	compared, err := a.Against(b, stats.DefaultOptions())
	if err != nil {
		return nil, err.Error()
	}
	compared.Stage = stage
	return &compared, ""
}

// Answer is what a sweep's report says to a question.
type Answer struct {
	Question, Sentence  string
	*arms.ArmComparison // nil: there is no answer
}

// Answers returns the answers to what the sweep asks, in the order of the questions.
func (v *View) Answers() []Answer {
	return list.Map(v.answers, func(a *answer) Answer { return Answer{a.Title(), a.sentence(), a.c} })
}

func (a *answer) sentence() string {
	if a.c == nil {
		return "No answer: " + page.Plain(a.refused) + "."
	}
	text := page.Capital(a.c.Sentence(nameOf(a.what), nameOf(a.against), results.MetricName(a.Metric)))
	if a.c.Seeds == 1 {
		text += "; one seed says nothing of others"
	}
	if a.within(a.c) {
		text += fmt.Sprintf("; that is less than the %g worth having", a.effect)
	}
	return text + "."
}

// nameOf is a label in a sentence: overrides as code, words as they are.
func nameOf(label string) string {
	if strings.Contains(label, "=") {
		return page.InlineCode(label)
	}
	return page.Plain(label)
}

// Title is the question, and under what it was asked where that is not all there is.
func (a *answer) Title() string {
	text := page.Plain(a.Ask)
	if !strings.HasSuffix(text, "?") {
		text += "?"
	}
	if len(a.condition.what) > 0 {
		text += fmt.Sprintf(" (%s)", page.CodeList(a.condition.what))
	}
	return text
}

// within says whether the difference by the planned measure, whose effect is asked for, is settled as smaller than what is worth having.
func (a *answer) within(c *arms.ArmComparison) bool {
	return c == a.c && a.effect > 0 && c.Changed > 0 && c.Within(a.effect)
}

// word is cell without the mark of rough intervals.
func (a *answer) word(c *arms.ArmComparison) string {
	return strings.TrimRight(a.cell(c), " "+stats.Dagger+stats.CutMark)
}

// cell marks a comparison that answers the question for a table.
func (a *answer) cell(c *arms.ArmComparison) string {
	if c == nil {
		return "–"
	}
	if a.within(c) && c.Verdict == stats.NotSeparable {
		return fmt.Sprintf("smaller than %g", a.effect)
	}
	_, _, _, verdict := c.Cells()
	return strings.Replace(verdict, string(stats.NotSeparable), "open", 1)
}

func (v *View) writeAnswers(d *page.Document) {
	if len(v.answers) == 0 {
		return
	}
	d.Heading(2, "Answers")
	p := "p (Holm)"
	if v.Opt.Ask != nil {
		p = "p (Holm, stage)"
	}
	var items []string
	var rows [][]string
	for i, a := range v.answers {
		items = append(items, fmt.Sprintf("**%d. %s** %s", i+1, a.Title(), a.sentence()))
		row := []string{fmt.Sprint(i + 1), page.Plain(a.what), page.Plain(a.against) + v.unusual(a)}
		if c := a.c; c != nil {
			mean, low, high := c.Texts()
			row = append(row, mean, low+" to "+high, page.Sig(c.SE, 2), page.Sig(c.SeedSE, 2),
				c.PCell(), a.cell(c))
		} else {
			row = append(row, "–", "–", "–", "–", "–", "no answer")
		}
		rows = append(rows, row)
	}
	d.List(items...)
	d.Table([]string{"", "arm", "against", ">difference", ">95% interval", ">SE, questions", ">SE, seeds", ">" + p, "verdict"}, rows)
	for _, note := range stats.Notes(rows) {
		d.Paragraph("%s", note)
	}
	if v.Opt.Ask != nil {
		d.Paragraph("%s", v.Opt.Ask.Rule())
	}
}

// unusual names the measure of a question that is not asked of the reward on the held-out set.
func (v *View) unusual(a *answer) string {
	var parts []string
	if a.Metric != "reward" {
		parts = append(parts, results.MetricName(a.Metric))
	}
	if a.split != v.split() {
		parts = append(parts, "on "+a.split)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + page.Plain(strings.Join(parts, " ")) + ")"
}

// writeReading says what the answers mean and what they cannot show.
func (v *View) writeReading(d *page.Document) {
	answered := list.Filter(v.answers, func(a *answer) bool { return a.c != nil })
	if len(answered) == 0 {
		return
	}
	var halves []float64
	for _, a := range answered {
		if a.c.Changed > 0 {
			halves = append(halves, (a.c.Interval.High-a.c.Interval.Low)/2)
		}
	}
	staged := ""
	if v.Opt.Ask != nil {
		staged = " and for the stage, which may spend a share of the level"
	}
	d.Heading(2, "How to read the answers")
	items := []string{
		"A difference is the mean score of the first minus that of the second, on the same questions and the same seeds.",
		"An arm is judged by the policy that it ended with, after all its steps. No checkpoint was chosen by validation, so that more " +
			"epochs are no more draws; below, the same with the best checkpoint.",
		"Each interval covers new questions and new seeds both. What one and the other add to it stands in the table as standard " +
			"errors. Where the seeds' is 0, they differ by no more than chance on single questions.",
		fmt.Sprintf("The p-values are corrected for the %s asked here (Holm)%s. A verdict needs an interval without 0 and a corrected p "+
			"below 0.05. An interval is that of its question alone.", page.Plural(len(answered), "question"), staged),
	}
	if len(halves) > 0 {
		reach := list.Unique([]string{page.Sig(slices.Min(halves), 2), page.Sig(slices.Max(halves), 2)})
		items = append(items, fmt.Sprintf("The intervals reach %s to each side: a difference smaller than that cannot be seen "+
			"with these questions and seeds. Open means not shown, not absent.", strings.Join(reach, " to ")))
	}
	if slices.ContainsFunc(answered, func(a *answer) bool { return a.c.OfTwoSeeds() }) {
		items = append(items, arms.TwoSeeds)
	}
	if v.split() == "val" {
		items = append(items, "There is no held-out set: these are validation questions.")
	} else {
		items = append(items, fmt.Sprintf("The questions are those of %s, which enter no choice of a run.", page.Plain(v.split())))
	}
	d.List(items...)
}

func (v *View) writeOthers(d *page.Document) {
	measures := v.measures()
	if !slices.ContainsFunc(v.answers, func(a *answer) bool { return a.c != nil }) {
		return
	}
	d.Heading(2, "The same by other measures")
	header := append([]string{"", "question", ">planned"}, list.Map(measures, func(m measure) string { return ">" + m.name })...)
	var rows [][]string
	var differ []string
	for i, a := range v.answers {
		row := []string{fmt.Sprint(i + 1), a.Title(), a.other(a.c)}
		for k, o := range a.others {
			row = append(row, a.other(o))
			if a.c != nil && o != nil && o.Verdict != a.c.Verdict {
				differ = append(differ, fmt.Sprintf("%d by %s (%s instead of %s)", i+1, measures[k].name, a.word(o), a.word(a.c)))
			}
		}
		rows = append(rows, row)
	}
	d.Table(header, rows)
	text := "Each column is corrected for its own number of comparisons. The planned measure decides; the others show how much hangs on " +
		"that choice."
	if len(differ) == 0 {
		text += " All verdicts are the same."
	} else {
		text += " Other verdicts: " + strings.Join(differ, "; ") + "."
	}
	d.Paragraph("%s", text)
}

func (a *answer) other(c *arms.ArmComparison) string {
	if c == nil {
		return "–"
	}
	mean, _, _ := c.Texts()
	return mean + " " + a.word(c)
}
