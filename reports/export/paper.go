package export

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/stat"
	"fulcrum/reports/arms"
	"fulcrum/reports/compare"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// Paper says what a table for a paper shows.
type Paper struct {
	Metrics []string // METRIC, or SPLIT/METRIC; none: the one by which the runs are judged
	Columns []string // of PaperColumns; none: score and gain, of several settings score and difference
	Digits  int      // decimals; below 0: those that the interval leaves
}

// PaperColumns are what a table for a paper can show of each metric; the last two are said once.
func PaperColumns() []string {
	return []string{"score", "gain", "difference", "p", "verdict", "seeds", "questions"}
}

// paperBlock is what a table for a paper shows of a metric.
type paperBlock struct {
	split, metric string
	over          string // what gains are over
	rows          []arms.Told
	several       bool            // settings; else policies of one run
	best          map[string]bool // rows that no other is better than
}

// Table returns a table of runs for a column of a paper in LaTeX, with a caption and a paragraph on their settings. Runs that differ in
// their seed alone are a row; of one run each policy is one. "": the runs have no scores to tell.
func (p Paper) Table(runs []*record.Run) (string, error) {
	split, metric, ok := arms.JudgedBy(runs[0])
	if !ok {
		return "", nil
	}
	var blocks []*paperBlock
	asked := p.Metrics
	if len(asked) == 0 {
		asked = []string{metric}
	}
	seeded := arms.ArmsOf(runs)
	for _, name := range asked {
		of, short, told := strings.Cut(name, "/")
		if !told {
			of, short = split, name
		}
		b, err := blockOf(seeded, of, short)
		if err != nil {
			return "", err
		}
		if len(b.rows) == 0 {
			return "", registry.Unknown("metric", name, scoresOf(runs[0]))
		}
		blocks = append(blocks, b)
	}
	columns := p.Columns
	if len(columns) == 0 {
		columns = []string{"score", "gain"}
		if len(seeded) > 1 {
			columns[1] = "difference"
		}
	}
	for _, c := range columns {
		if !slices.Contains(PaperColumns(), c) {
			return "", registry.Unknown("column", c, PaperColumns())
		}
	}
	return p.table(blocks, columns) + methods(seeded), nil
}

// scoresOf are the metrics that a run was scored by.
func scoresOf(run *record.Run) []string {
	return list.Map(results.StageTables(run.Evaluations), func(t []record.Evaluation) string { return t[0].Split + "/" + t[0].Metric })
}

// blockOf returns the rows of a metric: arms with the baselines below or, of one run, its policies.
func blockOf(seeded []arms.ComparedArm, split, metric string) (*paperBlock, error) {
	b := &paperBlock{split: split, metric: metric}
	if run := seeded[0].Runs[0]; len(seeded) == 1 && len(seeded[0].Runs) == 1 {
		stages, err := results.StagesOf(run)
		if err != nil {
			return nil, err
		}
		stages = slices.DeleteFunc(slices.Clone(stages), func(r record.StageResult) bool { return r.Split != split || r.Metric != metric })
		yards := results.YardsticksOf(stages, stages)
		slices.SortStableFunc(yards, func(a, _ results.Yardstick) int { return -stats.BoolInt(a.Policy == record.PolicyInit) })
		for _, r := range stages {
			if r.Policy == r.Phase && slices.ContainsFunc(stages, func(b record.StageResult) bool {
				return b.Policy == record.PolicyBest && b.Phase == r.Phase && b.Epoch == r.Epoch
			}) {
				continue // best has its row
			}
			arm, err := arms.ArmOf(seeded[0].Runs, split, metric, r.Policy)
			if err != nil {
				return nil, err
			}
			row := arms.Told{Name: r.Title(), Arm: arm}
			if len(yards) > 0 {
				b.over = yards[0].Short
				if gain := *yards[0].Gain(&r); gain != nil {
					row.Gain = &arms.ArmComparison{Paired: *gain}
				}
			}
			b.rows = append(b.rows, row)
		}
	} else {
		b.several = len(seeded) > 1
		tables := arms.ArmTables(seeded, func(s, m string) bool { return s == split && m == metric }, 0)
		if len(tables) == 0 {
			return b, nil
		}
		b.rows, b.over = tables[0].Told()
		names := compare.SettingNames(seeded)
		short := arms.ShortNames(list.Map(b.rows, func(r arms.Told) string { return cmp.Or(names[r.Name], r.Name) }))
		for i := range b.rows {
			b.rows[i].Name = short[i]
		}
	}
	b.crown()
	return b, nil
}

// crown finds the rows that no other is better than: the highest score, and those that are not separable from it. Bounds, which no policy
// is expected to pass, are no rows of it.
func (b *paperBlock) crown() {
	bound := func(r arms.Told) bool {
		return slices.Contains([]string{record.PolicyOracle, record.PolicyReference, "best beam"}, r.Name)
	}
	mean := func(r arms.Told) float64 { return stat.Mean(r.QueryScores()) }
	rows := slices.DeleteFunc(slices.Clone(b.rows), bound)
	if len(rows) == 0 {
		return
	}
	best := slices.MaxFunc(rows, func(x, y arms.Told) int { return cmp.Compare(mean(x), mean(y)) })
	b.best = map[string]bool{best.Name: true}
	var family []*arms.ArmComparison
	var names []string
	for _, r := range rows {
		if c, err := r.Against(best.Arm, stats.DefaultOptions()); err == nil && r.Name != best.Name {
			family, names = append(family, &c), append(names, r.Name)
		}
	}
	arms.HolmArms(family)
	for i, c := range family {
		b.best[names[i]] = c.Verdict == stats.NotSeparable
	}
}

// table writes the blocks beside each other, the rows of the first one.
func (p Paper) table(blocks []*paperBlock, columns []string) string {
	once := []string{"seeds", "questions"}
	of := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(once, c) })
	columns = slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return !slices.Contains(once, c) })
	first := blocks[0]
	var out strings.Builder
	float, wide := "table", len(columns)+len(of)*len(blocks)
	if wide > 3 { // over both columns of a page
		float = "table*"
	}
	fmt.Fprintf(&out, "%% needs \\usepackage{booktabs}\n\\begin{%s}\n\\centering\\footnotesize\\setlength{\\tabcolsep}{4pt}\n"+
		"\\begin{tabular}{@{}l%s@{}}\n\\toprule\n", float, strings.Repeat("r", wide))
	if len(blocks) > 1 {
		line, rules := strings.Repeat(" &", len(columns)), ""
		for i, b := range blocks {
			from := 2 + len(columns) + i*len(of)
			line += fmt.Sprintf(" & \\multicolumn{%d}{c}{%s}", len(of), page.Latex(results.MetricName(b.metric)+" on "+b.split))
			rules += fmt.Sprintf("\\cmidrule(lr){%d-%d}", from, from+len(of)-1)
		}
		out.WriteString(strings.TrimPrefix(line, " ") + " \\\\\n" + rules + "\n")
	}
	line := func(cells []string) { out.WriteString(strings.Join(cells, " & ") + " \\\\\n") }
	head := append([]string{"policy"}, columns...)
	if first.several {
		head[0] = "setting"
	}
	for range blocks {
		head = append(head, of...)
	}
	line(list.Map(head, page.Latex))
	out.WriteString("\\midrule\n")
	for _, r := range first.rows {
		name := page.Latex(r.Name)
		if strings.Contains(name, ", ") { // a setting a line
			name = "\\shortstack[l]{" + strings.ReplaceAll(name, ", ", "\\\\") + "}"
		}
		cells := []string{name}
		for _, c := range columns {
			cells = append(cells, p.cell(first, r, c))
		}
		for _, b := range blocks {
			at := slices.IndexFunc(b.rows, func(o arms.Told) bool { return o.Name == r.Name })
			for _, c := range of {
				if at < 0 {
					cells = append(cells, "--")
					continue
				}
				cells = append(cells, p.cell(b, b.rows[at], c))
			}
		}
		line(cells)
	}
	fmt.Fprintf(&out, "\\bottomrule\n\\end{tabular}\n\\caption{%s}\n\\end{%s}\n", page.Latex(caption(first, of)), float)
	return out.String()
}

// caption says how the table is to be read.
func caption(b *paperBlock, columns []string) string {
	text := fmt.Sprintf("%s on %s (%s)", page.Capital(results.MetricName(b.metric)), b.split, page.Plural(len(b.rows[0].QueryIDs), "question"))
	if slices.Contains(columns, "gain") && b.over != "" {
		text += ", with gains over " + strings.Replace(b.over, "initial", "the initial", 1)
	}
	if slices.Contains(columns, "difference") && b.several {
		text += ", with differences from " + b.rows[0].Name
	}
	return text + ", ± half of the 95% interval. Bold: the highest score and those that are not separable from it."
}

// cell is what a column says of a row.
func (p Paper) cell(b *paperBlock, r arms.Told, column string) string {
	asked := r.Gain
	if b.several {
		asked = r.Difference
	}
	switch column {
	case "seeds":
		return fmt.Sprint(len(r.Seeds))
	case "questions":
		return page.Thousands(len(r.QueryIDs))
	case "score":
		text := p.plusMinus(stat.Mean(r.QueryScores()), r.Interval(), page.Unsigned)
		if b.best[r.Name] {
			text = "\\mathbf{" + text + "}"
		}
		return "$" + text + "$"
	case "gain":
		return p.compared(r.Gain)
	case "difference":
		return p.compared(r.Difference)
	}
	switch {
	case asked == nil:
		return "--"
	case asked.Changed == 0:
		return "same scores"
	case column == "p":
		return page.Latex(asked.PCell())
	}
	return string(asked.Verdict)
}

func (p Paper) compared(c *arms.ArmComparison) string {
	switch {
	case c == nil:
		return "--"
	case c.Changed == 0:
		return "$0$"
	}
	return "$" + p.plusMinus(c.Mean, &c.Interval, page.Fixed) + "$"
}

// plusMinus writes a number with half of its interval, or with both ends where these are not as far: in LaTeX's mathematics.
func (p Paper) plusMinus(mean float64, i *stats.Interval, write func(float64, int) string) string {
	if i == nil { // one question
		i = &stats.Interval{Low: mean, High: mean}
	}
	m, low, high := page.Estimate(mean, i.Low, i.High, write)
	_, decimals, _ := strings.Cut(m, ".")
	n := len(decimals)
	if p.Digits >= 0 {
		n = p.Digits
		m, low, high = write(mean, n), write(i.Low, n), write(i.High, n)
	}
	half := (i.High - i.Low) / 2
	text := m + " \\pm " + page.Unsigned(half, n)
	if off := mean - i.Low - half; off > half/20 || off < -half/20 {
		text = fmt.Sprintf("%s\\ [%s, %s]", m, low, high)
	}
	return strings.ReplaceAll(text, "−", "-")
}
