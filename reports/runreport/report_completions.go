package runreport

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Widths of cells, in characters.
const (
	questionWidth   = 160
	answerWidth     = 80
	completionWidth = 100
)

const (
	shownGroups = 2  // of a step
	shownTexts  = 12 // of a group
)

// reportCompletions shows what a token policy sampled: groups of the first and the last kept step of each
// phase, so that a reader sees how the answers of a group and their rewards spread.
func reportCompletions(d *page.Document, run *record.Run) error {
	phases, err := shownCompletions(run.Dir)
	if err != nil || len(phases) == 0 {
		return err
	}
	d.Heading(2, "Sampled completions")
	d.Paragraph("%s, in the first and the last kept step of a phase, best first. The advantage is over the whole group. Escapes: `\\n` is a "+
		"line end, `\\u200b` a character that does not print, %s a space at an edge. All that were kept: [%s](%s).",
		run.InItsWords("Answers that the policy sampled for one question each"), page.VisibleSpace, record.CompletionsFile,
		record.CompletionsFile)
	for _, p := range phases {
		d.Heading(3, "%s", page.Plain(p.name))
		for _, s := range p.steps {
			for _, group := range s.groups() {
				reportGroup(d, run, s, group)
			}
		}
	}
	return nil
}

type keptStep struct {
	epoch, step int
	rows        []record.SampledCompletion
}

// keptPhase are the first and the last kept step of a phase, where they are two.
type keptPhase struct {
	name  string
	steps []keptStep
}

// shownCompletions reads the completions that the report shows, phases in order of appearance.
func shownCompletions(dir string) ([]*keptPhase, error) {
	var phases []*keptPhase
	err := record.EachJSON(filepath.Join(dir, record.CompletionsFile), func(c record.SampledCompletion) error {
		i := slices.IndexFunc(phases, func(p *keptPhase) bool { return p.name == c.Phase })
		if i < 0 {
			i = len(phases)
			phases = append(phases, &keptPhase{name: c.Phase})
		}
		p := phases[i]
		at := slices.IndexFunc(p.steps, func(s keptStep) bool { return s.step == c.Step })
		if at < 0 { // the one between is not the last
			at = min(len(p.steps), 1)
			p.steps = append(p.steps[:at], keptStep{epoch: c.Epoch, step: c.Step})
		}
		p.steps[at].rows = append(p.steps[at].rows, c)
		return nil
	})
	return phases, err
}

// groups are the first few groups of a step: runs of completions of one question.
func (s keptStep) groups() [][]record.SampledCompletion {
	var groups [][]record.SampledCompletion
	for from := 0; from < len(s.rows) && len(groups) < shownGroups; {
		to := from + 1
		for to < len(s.rows) && s.rows[to].QueryID == s.rows[from].QueryID && s.rows[to].Group > s.rows[to-1].Group {
			to++
		}
		groups = append(groups, s.rows[from:to])
		from = to
	}
	return groups
}

// reportGroup is one group: what was asked, and a line for each different completion.
func reportGroup(d *page.Document, run *record.Run, s keptStep, group []record.SampledCompletion) {
	rewards := list.Map(group, func(c record.SampledCompletion) float64 { return c.Reward })
	mean, se := stat.MeanSE(rewards)
	first := group[0]
	text := fmt.Sprintf("**Epoch %d, step %s, %s %d.**", s.epoch, page.Thousands(s.step), run.InItsWords("question"), first.QueryID)
	if first.Question != "" {
		text += " " + page.Plain(page.Clip(first.Pictures.Asked(first.Question), questionWidth))
	}
	if first.Reference != "" {
		text += " Target: " + page.TextCode(first.Reference, answerWidth) + "."
	}
	if answers := answerCounts(first.Answers); answers != "" && answers != page.TextCode(first.Reference, answerWidth) {
		text += " Answers: " + answers + "."
	}
	text += fmt.Sprintf(" %s, reward %s", page.Plural(len(group), "completion"), page.Sig(mean, 3))
	if slices.Min(rewards) != slices.Max(rewards) {
		text += " ± " + page.Sig(se*math.Sqrt(float64(len(group))), 3)
	}
	d.Paragraph("%s:", text)
	d.Paragraph("%s", pictureCell(first.Pictures))

	terms := shownTerms(group)
	header := slices.Concat([]string{"completion", ">times", ">tokens", ">reward"},
		list.Map(terms, func(name string) string { return ">" + page.Plain(name) }), []string{">advantage"})
	var rows [][]string
	for _, c := range distinct(group) {
		tokens := fmt.Sprint(len(c.Tokens))
		if c.Truncated {
			tokens += ", cut"
		}
		row := []string{page.TextCell(c.Text, completionWidth), fmt.Sprint(c.times), tokens, page.Sig(c.Reward, 3)}
		for _, name := range terms {
			cell := "–"
			if x, ok := c.Terms[name]; ok {
				cell = page.Sig(x, 3)
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, page.Fixed(c.Advantage, 2)))
	}
	if more := len(rows) - shownTexts; more > 0 { // the best and the worst
		gap := make([]string, len(header))
		gap[0] = fmt.Sprintf("… %d more", more)
		rows = slices.Concat(rows[:shownTexts/2], [][]string{gap}, rows[len(rows)-shownTexts/2:])
	}
	d.Table(header, rows)
}

func pictureCell(pictures record.Pictures) string {
	return strings.Join(list.Map(pictures.Shown(), func(name string) string { return "![picture](" + name + ")" }), " ")
}

type sampled struct {
	record.SampledCompletion
	times int
}

// distinct merges equal completions of a group, those with the most reward first.
func distinct(group []record.SampledCompletion) []sampled {
	var out []sampled
	for _, c := range group {
		same := func(o sampled) bool {
			return o.Text == c.Text && len(o.Tokens) == len(c.Tokens) && o.Truncated == c.Truncated && o.Reward == c.Reward &&
				maps.Equal(o.Terms, c.Terms)
		}
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].times++
		} else {
			out = append(out, sampled{c, 1})
		}
	}
	slices.SortStableFunc(out, func(a, b sampled) int {
		return cmp.Or(cmp.Compare(b.Reward, a.Reward), cmp.Compare(b.times, a.times))
	})
	return out
}

// shownTerms are the names of the reward's terms, none where its only term is the reward.
func shownTerms(group []record.SampledCompletion) []string {
	names := map[string]bool{}
	for _, c := range group {
		for name := range c.Terms {
			names[name] = true
		}
	}
	terms := slices.Sorted(maps.Keys(names))
	if len(terms) == 1 && !slices.ContainsFunc(group, func(c record.SampledCompletion) bool { return c.Terms[terms[0]] != c.Reward }) {
		return nil
	}
	return terms
}

// answerCounts writes the annotators' answers, the most frequent first: `red` ×8, `crimson` ×2.
func answerCounts(answers []string) string {
	const shown = 4
	counts := list.Tally(answers)
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var out []string
	for _, name := range names[:min(shown, len(names))] {
		text := page.TextCode(name, answerWidth)
		if counts[name] > 1 && len(names) > 1 {
			text += fmt.Sprintf(" ×%d", counts[name])
		}
		out = append(out, text)
	}
	if more := len(names) - shown; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}
