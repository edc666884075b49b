package arms

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// Method is a way of choosing examples, with what a model's answers scored after them: question by question, for each seed.
type Method struct {
	Model string // that answers; "" = the only one
	Name  string
	Shots int // examples in a prompt
	Arm
	Copied *float64 // share of the answers that an example before the question shows, right or wrong; nil: not known

	over   *ArmComparison // over the model's first method with as many examples; nil: this is it
	random *ArmComparison // of a placebo: over random examples
}

// MethodTable is a comparison of methods on the same questions.
type MethodTable struct{ Methods []*Method }

// JoinMethods compares the methods that runs of task=icl compared, each with a seed of its own, over those seeds. nil: none did.
func JoinMethods(runs []*record.Run) (*MethodTable, error) {
	var methods []*Method
	of := map[*Method][]*record.Run{}
	for _, run := range runs {
		for _, e := range run.Evaluations {
			model, name := path.Split(e.Policy) // as Policy joins them
			m := MethodTable{methods}.named(strings.TrimSuffix(model, "/"), e.Shots, name)
			if m == nil {
				m = &Method{Model: strings.TrimSuffix(model, "/"), Name: name, Shots: e.Shots}
				methods = append(methods, m)
			}
			of[m] = append(of[m], &record.Run{Dir: run.Dir, Tree: run.Tree, Evaluations: []record.Evaluation{e}})
		}
	}
	if len(methods) == 0 {
		return nil, nil
	}
	for _, m := range methods {
		var err error
		e := of[m][0].Evaluations[0]
		if m.Arm, err = ArmOf(of[m], e.Split, e.Metric, e.Policy); err != nil {
			return nil, err
		}
	}
	t, err := CompareMethods(methods)
	return &t, err
}

// Policy names the method in evals.jsonl: MODEL/NAME where several models answer.
func (m *Method) Policy() string {
	if m.Model == "" {
		return m.Name
	}
	return m.Model + "/" + m.Name
}

// CompareMethods compares all methods with the model's first one of as many examples, and placebos with random examples too. Intervals
// cover new questions and new seeds; tests and verdicts are corrected for all of these comparisons together (Holm).
func CompareMethods(methods []*Method) (MethodTable, error) {
	t := MethodTable{methods}
	var family []*ArmComparison
	compare := func(m, reference *Method) (*ArmComparison, error) {
		c, err := m.Against(reference.Arm, stats.DefaultOptions())
		family = append(family, &c)
		return &c, err
	}
	var err error
	for _, m := range methods {
		if first := t.named(m.Model, m.Shots, ""); m != first {
			if m.over, err = compare(m, first); err != nil {
				return t, err
			}
		}
		if random := t.named(m.Model, m.Shots, record.PolicyRandom); random != nil && strings.HasPrefix(m.Name, record.Placebo) {
			if m.random, err = compare(m, random); err != nil {
				return t, err
			}
		}
	}
	HolmArms(family)
	return t, nil
}

// named is the model's method of a name with so many examples; "": the first one.
func (t MethodTable) named(model string, shots int, name string) *Method {
	at := slices.IndexFunc(t.Methods, func(m *Method) bool {
		return m.Model == model && m.Shots == shots && (name == "" || m.Name == name)
	})
	if at < 0 {
		return nil
	}
	return t.Methods[at]
}

// Table is the comparison with a row for each method, in percent; full: with all digits, for programs.
func (t MethodTable) Table(title string, full bool) *page.Table {
	first := t.Methods[0].Name
	metric, unit := t.Methods[0].measure()
	if unit != "" {
		metric += " (" + strings.TrimSpace(unit) + ")"
	}
	table := page.NewTable([]string{"method", ">examples", ">seeds", ">" + metric, ">95% interval", ">over " + page.Plain(first),
		">95% interval of it", "verdict"}, nil)
	table.Title, table.Named = title, 2
	if c := t.Methods[len(t.Methods)-1].over; c != nil && c.IntervalLevel > 0 { // all are of one look
		table.Columns[6].Name = page.Markup(page.Sig(100*c.IntervalLevel, 4) + "% interval of it")
	}
	copies := slices.ContainsFunc(t.Methods, func(m *Method) bool { return m.Copied != nil })
	if copies {
		table.Columns = append(table.Columns, page.NewTable([]string{">copied (%)"}, nil).Columns...)
	}
	cell := func(text string, of ...float64) any {
		switch {
		case !full:
			return page.Markup(text)
		case len(of) == 1:
			return of[0]
		}
		return fmt.Sprint(of)
	}
	for _, m := range t.Methods {
		row := []any{m.Name, m.Shots, len(m.Seeds), cell(fmt.Sprintf("%.1f", m.percent()), m.percent()), nil, nil, nil, nil}
		if m.Name == "none" {
			row[1] = 0
		}
		if interval := m.Interval(); interval != nil {
			mean, low, high := page.Estimate(m.percent(), 100*interval.Low, 100*interval.High, page.Unsigned)
			row[3], row[4] = cell(mean, m.percent()), cell(low+" to "+high, 100*interval.Low, 100*interval.High)
		}
		if c := m.over; c != nil {
			mean, low, high := c.percents()
			row[5], row[6] = cell(mean, 100*c.Mean), cell(low+" to "+high, 100*c.Interval.Low, 100*c.Interval.High)
			row[7] = stats.VerdictCell(c.Paired)
		}
		if copies {
			row = append(row, nil)
		}
		if m.Copied != nil {
			row[8] = cell(fmt.Sprintf("%.1f", 100**m.Copied), 100**m.Copied)
		}
		table.Rows = append(table.Rows, row)
	}
	if t.Methods[0].Model != "" {
		table.Named++
		table.Columns = append(page.NewTable([]string{"model"}, nil).Columns, table.Columns...)
		for i, m := range t.Methods {
			table.Rows[i] = append([]any{m.Model}, table.Rows[i]...)
		}
	}
	return table
}

// measure is what percent is called, and its unit.
func (m *Method) measure() (name, unit string) {
	if m.Metric == "cider" {
		return "CIDEr-D × 100", ""
	}
	return m.Metric, " %"
}

func (m *Method) percent() float64 { return 100 * stat.Mean(m.QueryScores()) }

// Findings say in words what the comparison found.
func (t MethodTable) Findings(d *page.Document) {
	for _, first := range t.Methods {
		if first.over != nil {
			continue
		}
		whose, n := "the model", first.Shots
		metric, unit := first.measure()
		if first.Model != "" {
			whose = "`" + first.Model + "`"
		}
		how := "chosen by"
		if first.Name == "image" || first.Name == "text" {
			how = "nearest by"
		}
		d.Paragraph("With %s %s `%s`, %s's %s on %s is **%.1f%s**. Others differ from it by so many points:", page.Plural(n, "example"), how,
			first.Name, whose, page.Plain(metric), page.Plural(len(first.QueryIDs), "held-out question"), first.percent(), unit)
		var items []string
		for _, of := range []struct {
			verdict stats.Verdict
			words   string
		}{{stats.Better, "**Better than `%s`**"}, {stats.Worse, "**Worse than `%s`**"},
			{stats.NotSeparable, "**Not separable from `%s`**"}} {
			var gains []string
			for _, m := range t.Methods {
				if m.Model == first.Model && m.Shots == n && m.over != nil && m.over.Verdict == of.verdict {
					gains = append(gains, fmt.Sprintf("`%s` %s", m.Name, m.over.points()))
				}
			}
			if len(gains) > 0 {
				items = append(items, fmt.Sprintf(of.words, first.Name)+": "+strings.Join(gains, ", ")+".")
			}
		}
		for _, m := range t.Methods {
			if m.Model == first.Model && m.Shots == n && m.random != nil {
				items = append(items, m.control())
			}
		}
		d.List(items...)
	}
}

// Write writes what was found, the table, and how to read it.
func (t MethodTable) Write(d *page.Document, title string) {
	t.Findings(d)
	table := t.Table(title, false)
	d.Add(table)
	d.Paragraph("Differences are paired by question. Intervals cover new questions and new seeds; the verdicts "+
		"are corrected for all comparisons of this table together (Holm), the intervals are not. An interval ends at what scores can "+
		"be. %s %s", stats.RoughNote(table.Rows), stats.CutNote(table.Rows))
	var look stats.Look
	for _, m := range t.Methods {
		look = look.Later(m.Look)
	}
	if look != (stats.Look{}) {
		d.Paragraph("%s", page.Capital(look.Spent()))
	}
}

// percents are Texts in percent.
func (c *ArmComparison) percents() (mean, low, high string) {
	return page.Estimate(100*c.Mean, 100*c.Interval.Low, 100*c.Interval.High, page.Fixed)
}

// points are a difference with its interval, in percent.
func (c *ArmComparison) points() string {
	mean, low, high := c.percents()
	return fmt.Sprintf("%s (%s to %s)", mean, low, high)
}

// control says whether a placebo does what it should: as well as chance.
func (m *Method) control() string {
	what := fmt.Sprintf("`%s`, trained on permuted rewards, ", m.Name)
	if c := m.random; c.Verdict != stats.NotSeparable {
		return what + fmt.Sprintf("is %s than `random`, %s: an untrained selector chooses what is similar, and keeps some of it.", c.Verdict,
			c.points())
	}
	return what + fmt.Sprintf("is not separable from `random`, %s: without rewards no gain is shown.", m.random.points())
}
