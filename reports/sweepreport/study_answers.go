package sweepreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// studyAnswer is what the runs say to a question.
type studyAnswer struct {
	StudyQuestion
	setting       *studySetting
	split         string
	what, against string // labels
	c             *results.ArmComparison
	refused       string                   // why there is no comparison
	others        []*results.ArmComparison // by the other measures; nil: it cannot be made
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
	families := make([][]*results.ArmComparison, 1+len(measures))
	for _, s := range v.armSettings {
		for _, q := range v.opt.Study.Questions {
			a := &studyAnswer{StudyQuestion: q, setting: s, split: cmp.Or(q.Split, v.split())}
			a.what, a.against = s.label(q.Arm), s.label(q.Against)
			a.c, a.refused = s.compare(q.Arm, q.Against, a.split, q.Metric, false)
			a.refused = v.within(a.refused)
			if a.c != nil {
				families[0] = append(families[0], a.c)
			}
			for i, m := range measures {
				c, _ := s.compare(q.Arm, q.Against, cmp.Or(m.split, a.split), cmp.Or(m.metric, q.Metric), m.best)
				if c != nil {
					families[1+i] = append(families[1+i], c)
				}
				a.others = append(a.others, c)
			}
			v.answers = append(v.answers, a)
		}
	}
	for _, family := range families {
		results.HolmArms(family)
	}
}

// within names the study's files as they stand in its folder, which may be moved.
func (v *View) within(text string) string { return strings.ReplaceAll(text, v.dir+"/", "") }

// label is what a sentence calls an arm or a baseline.
func (s *studySetting) label(name string) string {
	if a := s.arm(name); a != nil {
		return a.Label
	}
	words := map[string]string{record.PolicyInit: "the initial policy", record.PolicyMajority: "the majority answer",
		record.PolicyBestBeam: "the best recorded beam", record.PolicyOracle: "the oracle", record.PolicyReference: "the target answers"}
	return cmp.Or(words[name], name)
}

// compare compares an arm with another or with a baseline, seed by seed over the seeds that both have. An arm
// is judged by the policy that its runs ended with: no checkpoint is chosen, so that more epochs are no more
// draws. best takes the checkpoint that validation prefers instead.
func (s *studySetting) compare(name, against, split, metric string, best bool) (*results.ArmComparison, string) {
	this, other := s.arm(name), s.arm(against)
	policy := func(a *armRuns) string {
		if best {
			return record.PolicyBest
		}
		return a.last()
	}
	of, ofPolicy := this.root(), against // a baseline, in the runs with untrained weights at their start
	if other != nil {
		of, ofPolicy = other, policy(other)
	}
	seeds := slices.DeleteFunc(this.seeds(), func(seed int64) bool { return !slices.Contains(of.seeds(), seed) })
	switch {
	case len(this.runs) == 0:
		return nil, "no run of " + this.Label + " is done"
	case len(of.runs) == 0:
		return nil, "no run of " + of.Label + " is done"
	case len(seeds) == 0:
		return nil, "no seed of both is done"
	}
	a, err := results.ArmOf(this.withSeeds(seeds), split, metric, policy(this))
	if err != nil {
		return nil, err.Error()
	}
	b, err := results.ArmOf(of.withSeeds(seeds), split, metric, ofPolicy)
	if err != nil {
		return nil, err.Error()
	}
	a.Name, b.Name = s.label(name), s.label(against)
	if other := results.OtherRewards(this.runs[0], of.runs[0], split, metric); other.Cell != "" {
		return nil, "the two " + other.Why
	}
	c, err := a.Against(b, stats.DefaultOptions())
	if err != nil {
		return nil, err.Error()
	}
	return &c, ""
}

// sentence answers the question.
func (a *studyAnswer) sentence() string {
	if a.c == nil {
		return "No answer: " + page.Plain(a.refused) + "."
	}
	text := page.Capital(a.c.Sentence(page.Plain(a.what), page.Plain(a.against), a.Metric))
	if a.c.Seeds == 1 {
		text += "; one seed says nothing of others"
	}
	return text + "."
}

// Title is the question, and under what it was asked where that is not all there is.
func (a *studyAnswer) Title() string {
	text := page.Plain(a.Ask)
	if !strings.HasSuffix(text, "?") {
		text += "?"
	}
	if len(a.setting.what) > 0 {
		text += fmt.Sprintf(" (%s)", page.CodeList(a.setting.what))
	}
	return text
}

// answerWord is answerCell without the mark of rough intervals.
func answerWord(c *results.ArmComparison) string {
	return strings.TrimRight(answerCell(c), " "+stats.Dagger+stats.CutMark)
}

// answerCell marks an answer for a table.
func answerCell(c *results.ArmComparison) string {
	if c == nil {
		return "–"
	}
	return strings.Replace(stats.VerdictCell(c.Paired), string(stats.NotSeparable), "open", 1)
}
