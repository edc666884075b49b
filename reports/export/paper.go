package export

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/stat"
	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// Paper says what a table for a paper shows.
type Paper struct {
	Metrics []string // METRIC, or SPLIT/METRIC; none: the one by which the runs are judged
	Columns []string // of PaperColumns, and keys of the configuration; none: score and gain, of several settings score and difference
	Digits  int      // decimals; below 0: those that the interval leaves
	// Default is the value of a key in a run of which nothing is said: the paragraph leaves out what has it. nil: it leaves out nothing.
	Default func(key string) any
}

// ofMetrics are what a table for a paper can show of each metric.
func ofMetrics() []string { return []string{"score", "gain", "difference", "p", "verdict"} }

// PaperColumns are what a table for a paper can show: of each metric, and, the last two, of each row once.
func PaperColumns() []string { return append(ofMetrics(), "seeds", "questions") }

// paperBlock is what a table for a paper shows of a metric.
type paperBlock struct {
	split, metric string
	over          string          // what gains are over
	rows          []arms.Told     // of arms first; one that was not scored has its name alone
	arms          int             // how many rows are arms; 0: policies of one run
	best          map[string]bool // rows that no other is better than
	last          bool            // arms are judged by the policies that their runs ended with
}

// Table returns a table of arms for a column of a paper in LaTeX, with a caption and a paragraph on their settings. Each is a row; of one
// run each policy is one. "": the runs have no scores to tell.
func (p Paper) Table(seeded []arms.ComparedArm) (string, error) {
	runs := slices.Concat(list.Map(seeded, func(a arms.ComparedArm) []*record.Run { return a.Runs })...)
	split, metric, ok := arms.Judged(seeded)
	if !ok {
		return "", nil
	}
	var blocks []*paperBlock
	asked := p.Metrics
	if len(asked) == 0 {
		asked = []string{metric}
	}
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
			return "", registry.Unknown("metric", name, scoresOf(runs))
		}
		blocks = append(blocks, b)
		for _, r := range b.rows {
			if first := blocks[0]; !slices.ContainsFunc(first.rows, func(o arms.Told) bool { return o.Name == r.Name }) {
				first.rows = append(first.rows, arms.Told{Name: r.Name})
			}
		}
	}
	slices.SortStableFunc(blocks[0].rows, func(a, b arms.Told) int { return stats.BoolInt(isBound(a.Name)) - stats.BoolInt(isBound(b.Name)) })
	keys := settingsOf(runs)
	columns := p.Columns
	if len(columns) == 0 {
		columns = []string{"score", "gain"}
		if len(seeded) > 1 {
			columns[1] = "difference"
		}
		if strings.Contains(blocks[0].questions(), " and ") {
			columns = append(columns, "questions")
		}
	}
	for _, c := range columns {
		if names := PaperColumns(); keys[c] == nil && !slices.Contains(names, c) {
			return "", fmt.Errorf("unknown column %q%s: want one of %s, or a key of the runs, as in seed", c,
				registry.DidYouMean(registry.Suggest(c, slices.AppendSeq(names, maps.Keys(keys)))), strings.Join(names, ", "))
		}
		if c == "difference" && len(seeded) < 2 {
			return "", errors.New("column difference: there is one setting: want several, or the column gain")
		}
	}
	return p.table(blocks, columns) + p.methods(runs, keys, blocks), nil
}

// scoresOf are the metrics that runs were scored by.
func scoresOf(runs []*record.Run) (all []string) {
	for _, run := range runs {
		for _, t := range results.StageTables(run.Evaluations) {
			all = append(all, t[0].Split+"/"+t[0].Metric)
		}
	}
	return list.Unique(all)
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
		yards, baselines := results.YardsticksOf(stages, stages), arms.BaselinesOf(seeded[0].Runs, split, metric)
		slices.SortStableFunc(yards, func(a, _ results.Yardstick) int { return -stats.BoolInt(a.Policy == record.PolicyInit) })
		for _, r := range results.WithoutTwins(stages) {
			arm, err := arms.ArmOf(seeded[0].Runs, split, metric, r.Policy)
			if err != nil {
				return nil, err
			}
			row := arms.Told{Name: r.Title(), Arm: arm}
			for _, b := range baselines { // which say what is an oracle
				if strings.HasPrefix(b.Name, row.Name) {
					row.Name = b.Name
				}
			}
			if len(yards) > 0 {
				b.over = yards[0].Short
				if gain := *yards[0].Gain(&r); gain != nil {
					row.Gain = &arms.ArmComparison{Paired: *gain}
				}
			}
			if r.Phase != "" && r.Phase != record.PolicyInit {
				row.Runs = seeded[0].Runs
			}
			b.rows = append(b.rows, row)
		}
	} else {
		if b.rows, b.over = arms.ToldOf(seeded, split, metric); len(b.rows) == 0 {
			return b, nil
		}
		b.arms, b.last = len(seeded), seeded[0].Policy != ""
		if len(seeded) == 1 {
			b.rows[0].Name = "trained policy"
		}
	}
	if len(b.rows) > 0 {
		b.crown()
	}
	return b, nil
}

// settingsOf is the configuration of runs by dotted keys: the values that each has among them.
func settingsOf(runs []*record.Run) map[string][]string {
	all := map[string][]string{}
	for _, r := range runs {
		one := map[string]string{}
		record.Flatten(one, "", r.Tree)
		for key, value := range one {
			if !slices.Contains(all[key], value) {
				all[key] = append(all[key], value)
			}
		}
	}
	return all
}

// isBound reports whether a row knows the answers: no policy is expected to pass it.
func isBound(name string) bool {
	return slices.Contains([]string{record.PolicyOracle, record.PolicyReference, "best beam", "recorded order (best first)"}, name)
}

// crown finds the rows that no other is better than: the highest score, and those that are not separable from it, down to the lowest whose
// test would tell the lowest of all: one that separates nothing, as of two seeds, crowns nothing by itself. Bounds are no rows of it, nor
// are those that cannot be compared with the first; one row alone is the highest of nothing.
func (b *paperBlock) crown() {
	mean := func(r arms.Told) float64 { return stat.Mean(r.QueryScores()) }
	first := b.first()
	var rows []arms.Told
	for i, r := range b.rows {
		if refused := i < b.arms && r.Difference == nil && r.Name != first.Name; !isBound(r.Name) && !refused && len(r.QueryIDs) > 0 {
			rows = append(rows, r)
		}
	}
	if len(rows) < 2 {
		return
	}
	byMean := func(x, y arms.Told) int { return cmp.Compare(mean(x), mean(y)) }
	best := slices.MaxFunc(rows, byMean)
	spread, lowest := mean(best)-mean(slices.MinFunc(rows, byMean)), mean(best)
	b.best = map[string]bool{best.Name: true}
	var family []*arms.ArmComparison
	var of []arms.Told
	for _, r := range rows {
		if c, err := r.Against(best.Arm, stats.DefaultOptions()); err == nil && r.Name != best.Name {
			family, of = append(family, &c), append(of, r)
		}
	}
	arms.HolmArms(family)
	for i, c := range family {
		if c.Verdict == stats.NotSeparable && c.Tells(spread) {
			lowest = min(lowest, mean(of[i]))
		}
	}
	for i, c := range family {
		b.best[of[i].Name] = c.Verdict == stats.NotSeparable && mean(of[i]) >= lowest
	}
}

// first is the first row with scores.
func (b *paperBlock) first() arms.Told {
	return b.rows[slices.IndexFunc(b.rows, func(r arms.Told) bool { return len(r.QueryIDs) > 0 })]
}

// questions counts those of the rows: 200 and 120 questions.
func (b *paperBlock) questions() string {
	scored := list.Filter(b.rows, func(r arms.Told) bool { return len(r.QueryIDs) > 0 })
	counts := list.Unique(list.Map(scored, func(r arms.Told) int { return len(r.QueryIDs) }))
	return page.Joined(list.Map(counts, page.Thousands)) + page.Verb(counts[0], " question", " questions")
}

// settingBreak is between two settings in a name, in LaTeX.
var settingBreak = regexp.MustCompile(`, ([\w./@+~\\-]+=)`)

// table writes the blocks beside each other, the rows of the first one.
func (p Paper) table(blocks []*paperBlock, columns []string) string {
	each := func(c string) bool { return slices.Contains(ofMetrics(), c) }
	of := list.Filter(columns, each)
	columns = list.Filter(columns, func(c string) bool { return !each(c) })
	first, asked := blocks[0], blocks
	if len(of) == 0 {
		blocks = blocks[:1]
	}
	head := append([]string{"policy"}, columns...)
	if first.arms > 1 {
		head[0] = "setting"
	}
	over, rules := strings.Repeat(" &", len(columns)), ""
	for _, b := range blocks {
		over += fmt.Sprintf(" & \\multicolumn{%d}{c}{%s}", len(of), page.Latex(results.MetricName(b.metric)+" on "+b.split))
		rules += fmt.Sprintf("\\cmidrule(lr){%d-%d}", len(head)+1, len(head)+len(of))
		head = append(head, of...)
	}
	lines := [][]string{list.Map(head, page.Latex)}
	for _, r := range first.rows {
		cells := []string{page.Latex(r.Name)}
		if settingBreak.MatchString(cells[0]) { // a setting a line
			cells[0] = "\\begin{tabular}[t]{@{}l@{}}" + settingBreak.ReplaceAllString(cells[0], `\\$1`) + "\\end{tabular}"
		}
		cells = append(cells, list.Map(columns, func(c string) string { return p.cell(first, r, c) })...)
		for _, b := range blocks {
			told := arms.Told{}
			if at := slices.IndexFunc(b.rows, func(o arms.Told) bool { return o.Name == r.Name }); at >= 0 {
				told = b.rows[at]
			}
			cells = append(cells, list.Map(of, func(c string) string { return p.cell(b, told, c) })...)
		}
		lines = append(lines, cells)
	}
	float := "table"
	if letters(lines) > 60 {
		float = "table*" // over both columns of a page
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%% needs \\usepackage{booktabs}\n\\begin{%s}\n\\centering\\footnotesize\\setlength{\\tabcolsep}{4pt}\n"+
		"\\begin{tabular}{@{}l%s@{}}\n\\toprule\n", float, strings.Repeat("r", len(head)-1))
	if len(blocks) > 1 {
		out.WriteString(strings.TrimPrefix(over, " ") + " \\\\\n" + rules + "\n")
	}
	bounds := slices.IndexFunc(first.rows, func(r arms.Told) bool { return isBound(r.Name) }) // the line before the first of them
	for i, cells := range lines {
		out.WriteString(strings.Join(cells, " & ") + " \\\\\n" + strings.Repeat("\\midrule\n", stats.BoolInt(i == 0 || i == bounds)))
	}
	fmt.Fprintf(&out, "\\bottomrule\n\\end{tabular}\n\\caption{%s}\n\\end{%s}\n", page.Latex(caption(asked, of)), float)
	return out.String()
}

// inLatex is what LaTeX does not print as letters.
var inLatex = regexp.MustCompile(`\\begin.*?\}\}|\\[a-z]+|[{}$\\]`)

// letters is how many letters wide a table is, with two for the room between columns.
func letters(lines [][]string) (n int) {
	for c := range lines[0] {
		widest := 0
		for _, cells := range lines {
			for part := range strings.SplitSeq(cells[c], `\\`) {
				widest = max(widest, utf8.RuneCountInString(inLatex.ReplaceAllString(part, "")))
			}
		}
		n += widest + 2
	}
	return n
}

// reference is what a caption calls what gains are over.
func (b *paperBlock) reference() string {
	if b.over == "initial policy" && b.arms > 1 {
		return "the policy that each began with"
	}
	return strings.Replace(b.over, "initial", "the initial", 1)
}

// caption says how the table is to be read.
func caption(blocks []*paperBlock, columns []string) string {
	first, of := blocks[0], "gain"
	text := page.Capital(page.Joined(list.Map(blocks, func(b *paperBlock) string {
		return fmt.Sprintf("%s on %s (%s)", results.MetricName(b.metric), b.split, b.questions())
	})))
	has := func(any ...string) bool {
		return slices.ContainsFunc(any, func(c string) bool { return slices.Contains(columns, c) })
	}
	var with []string
	if gained := list.Filter(blocks, func(b *paperBlock) bool { return b.over != "" }); has("gain") && len(gained) > 0 {
		overs := list.Map(gained, (*paperBlock).reference)
		if len(list.Unique(overs)) == 1 {
			overs = overs[:1]
		} else {
			overs = list.Map(gained, func(b *paperBlock) string {
				return b.reference() + " in " + results.MetricName(b.metric) + " on " + b.split
			})
		}
		with = append(with, "gains over "+page.Joined(overs))
	}
	if first.arms > 1 && has("difference", "p", "verdict") {
		of, with = "difference", append(with, "differences from "+first.first().Name)
	}
	if has("p", "verdict") {
		with = append(with, "p-values and verdicts of these "+of+"s, corrected for their number (Holm)")
		for _, r := range first.rows[:min(first.arms, 2)] { // the stage is that of all
			if r.Difference != nil && r.Difference.Stage.N > 0 {
				with[len(with)-1] += " and for " + r.Difference.Stage.String()
			}
		}
	}
	if len(with) > 0 {
		text += ", with " + page.Joined(with)
	}
	text += "."
	if first.last {
		text += " Of each run the policy that it ended with."
	}
	if has("score", "gain", "difference") {
		text += " ± is half of the 95% interval."
	}
	if has("score") {
		text += " Bold: the highest score and what is not separable from it, down to the lowest row whose test finds the table's largest " +
			"difference in 4 of 5 cases."
	}
	if slices.ContainsFunc(first.rows, func(r arms.Told) bool { return isBound(r.Name) }) {
		text += " Below the last rule: upper bounds, which know the answers and are never bold."
	}
	refused := func(r arms.Told) bool { return r.Difference == nil && r.Name != first.first().Name }
	if n := first.arms; n > 1 && slices.ContainsFunc(first.rows[:n], refused) {
		text += " A setting without difference was not scored on the same questions by the same rewards, and is never bold."
		if len(first.rows) == n {
			text += " Baselines would be those of one of them."
		}
	}
	return text
}

// cell is what a column says of a row.
func (p Paper) cell(b *paperBlock, r arms.Told, column string) string {
	asked := r.Gain
	if b.arms > 1 {
		asked = r.Difference
	}
	switch column {
	case "gain":
		return p.compared(r.Gain)
	case "difference":
		return p.compared(r.Difference)
	case "p", "verdict":
		_, value, _, verdict := asked.Cells()
		if asked != nil && asked.Changed > 0 { // without the marks of notes that are not there
			verdict = string(asked.Verdict)
		}
		return page.Latex(map[string]string{"p": value, "verdict": cmp.Or(verdict, "–")}[column])
	}
	value, isKey := settingsOf(r.Runs)[column]
	switch {
	case isKey:
		return page.Latex(strings.Join(value, ", "))
	case len(r.QueryIDs) == 0 || !slices.Contains(PaperColumns(), column):
		return "--"
	case column == "seeds":
		return fmt.Sprint(len(r.Seeds))
	case column == "questions":
		return page.Thousands(len(r.QueryIDs))
	}
	text := p.plusMinus(stat.Mean(r.QueryScores()), r.Interval(), page.Unsigned)
	if b.best[r.Name] {
		text = "\\mathbf{" + text + "}"
	}
	return "$" + text + "$"
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
	one := i == nil // question: what others would do is not known
	if one {
		i = &stats.Interval{Low: mean, High: mean}
	}
	m, low, high := page.Estimate(mean, i.Low, i.High, write)
	_, decimals, _ := strings.Cut(m, ".")
	n := len(decimals)
	if p.Digits >= 0 {
		n = p.Digits
		m, low, high = write(mean, n), write(i.Low, n), write(i.High, n)
	}
	if one {
		return strings.ReplaceAll(m, "−", "-")
	}
	half := (i.High - i.Low) / 2
	text := m + " \\pm " + page.Unsigned(half, n)
	if off := mean - i.Low - half; off > half/20 || off < -half/20 {
		text = fmt.Sprintf("%s\\ [%s, %s]", m, low, high)
	}
	return strings.ReplaceAll(text, "−", "-")
}
