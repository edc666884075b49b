package published

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/stats"
)

// publishedShares are the shares of changed questions for which a report states its bounds.
func publishedShares() []float64 { return []float64{0.05, 0.10, 0.20} }

func (t *publishedTable) report(families []*family) *page.Document {
	var d page.Document
	d.Heading(1, "What these published numbers allow to conclude")
	compared := 0
	for _, f := range families {
		compared += len(f.all())
	}
	about := ""
	if t.what != "" {
		about = " (" + page.Plain(strings.TrimSuffix(t.what, ".")) + ")"
	}
	d.Paragraph("%s%s holds %s. They make %s of a variant with a baseline, in %s. The scores of single questions are not in it, so a "+
		"difference is held against what it could be at most by chance: with other questions on each side (unpaired), and with the same "+
		"questions of which a share changed (paired).", page.InlineCode(filepath.Base(t.path)), about,
		page.Plural(len(t.rows), "accuracy"), page.Plural(compared, "comparison"), page.Plural(len(families), "table"))
	if n := list.Count(t.rows, func(r publishedRow) bool { return r.questions() == 0 }); n > 0 {
		d.Paragraph("%s without a number of questions stand in no comparison.", page.Plural(n, "accuracy"))
	}
	var single, many []*family
	var short []string
	for _, f := range families {
		if len(f.samplers) == 1 {
			single, short = append(single, f), append(short, f.inShort())
		} else {
			many = append(many, f)
		}
	}
	if len(many) > 0 {
		all := slices.Concat(list.Map(many, (*family).all)...)
		short = append(short, fmt.Sprintf("**%s with several samplers**: %s. %s", page.Plural(len(many), "smaller table"),
			page.Plural(len(all), "comparison"), verdictsOn(all)))
	}
	d.Heading(2, "In short")
	d.List(short...)
	for _, f := range single {
		f.Write(&d)
	}
	writeMany(&d, many)
	all := t.allSeries()
	odd := slices.Concat(repeatedShots(all), repeatedSelectors(all), repeatedSizes(all), contradictions(all), t.impossibleMeans())
	if len(odd) > 0 {
		d.Heading(2, "Rows to check before using them")
		d.List(odd...)
	}
	d.Heading(2, "How this was worked out")
	d.List(
		"A score lies between 0 and 1, so an accuracy p over n questions has a standard error of at most √(p(1−p)/n), and an unpaired "+
			"difference of at most √((p₁(1−p₁) + p₂(1−p₂))/n).",
		"On the same questions of which a share c changed, a difference has a standard error of at most √(c/n). What c is can only be "+
			"seen in the scores of single questions: publish them, or `evals.jsonl`.",
		"p-values and shares are corrected for all comparisons of their table (Holm, 5 %). The mean over shots counts as one more "+
			"comparison and is taken to be as uncertain as one number of shots, since a question may answer alike at all of them.",
		"Questions needed are for one comparison, planned beforehand and made alone, at 5 % and with 80 % power.",
		"Seeds are not in it: one training run of each variant says nothing about the next one.",
	)
	return &d
}

// inShort is a family's conclusion.
func (f *family) inShort() string {
	what := page.Plain(f.variants[0].selector)
	if len(f.variants) > 1 {
		what = page.Plural(len(f.variants), "variant")
	}
	text := fmt.Sprintf("**%s**: %s against %s, %s.", page.Plain(f.name()), what, page.Plain(f.baseline),
		page.Plural(len(f.all()), "comparison"))
	return text + " " + verdictsOn(f.all())
}

// verdictsOn says which gains and which losses are established.
func verdictsOn(all []*gap) string {
	gains := verdictOn(all, "gain", func(g *gap) bool { return g.difference > 0 })
	return gains + " " + verdictOn(all, "loss", func(g *gap) bool { return g.difference < 0 })
}

// verdictOn says how many gaps of one sign are established, and under which condition others would be.
func verdictOn(all []*gap, noun string, sign func(*gap) bool) string {
	made, hold, may := 0, 0, 0
	least, most, largest := 1.0, 0.0, &gap{}
	for _, g := range all {
		if !sign(g) {
			continue
		}
		made++
		if math.Abs(g.difference) > math.Abs(largest.difference) {
			largest = g
		}
		switch {
		case g.holds():
			hold++
		case g.mayHold():
			may++
			least, most = min(least, g.share), max(most, g.share)
		}
	}
	nouns := noun + "s"
	if noun == "loss" {
		nouns = "losses"
	}
	switch {
	case made == 0:
		return fmt.Sprintf("There is no %s.", noun)
	case made == 1 && hold == 1:
		return fmt.Sprintf("The one %s, %s, is established.", noun, inPoints(largest))
	case hold == made:
		return fmt.Sprintf("All %d %s are established; the largest is %s.", made, nouns, inPoints(largest))
	case made == 1 && may == 1:
		return fmt.Sprintf("The one %s, %s, would be established only if at most %s of the questions changed.", noun, inPoints(largest),
			downTo(least))
	case made == 1:
		return fmt.Sprintf("The one %s, %s, is not established.", noun, inPoints(largest))
	case hold+may == 0:
		return fmt.Sprintf("None of %d %s is established; the largest is %s.", made, nouns, inPoints(largest))
	}
	text := fmt.Sprintf("Of %d %s, up to %s, ", made, nouns, inPoints(largest))
	if hold > 0 {
		text += fmt.Sprintf("%d %s", hold, page.Verb(hold, "is established", "are established"))
	} else {
		text += "none is established as published"
	}
	if may > 0 {
		limits := downTo(least)
		if upper := downTo(most); upper != limits {
			limits = strings.TrimSuffix(limits, " %") + " to " + upper
		}
		text += fmt.Sprintf(", %d would be only if at most %s of the questions changed", may, limits)
	}
	if open := made - hold - may; open > 0 {
		text += fmt.Sprintf(", %d %s", open, page.Verb(open, "stays open", "stay open"))
	}
	return text + "."
}

// points writes a gap in points of percent, with the digits that its unpaired interval leaves.
func (g *gap) points(write func(float64, int) string) string {
	half := distuv.UnitNormal.Quantile(0.975) * g.se
	text, _, _ := page.Estimate(100*g.difference, 100*(g.difference-half), 100*(g.difference+half), write)
	return text
}

// inPoints writes the size of a gap.
func inPoints(g *gap) string { return strings.TrimPrefix(g.points(page.Unsigned), "−") + " points" }

// downTo writes a share in percent, rounded down: 11 %, 1.7 %.
func downTo(x float64) string {
	if x >= 0.1 {
		return fmt.Sprintf("%.0f %%", math.Floor(100*x+1e-9))
	}
	return fmt.Sprintf("%.1f %%", math.Floor(1000*x+1e-9)/10)
}

// cell writes a gap with what it takes to hold.
func (g *gap) cell() string {
	text := g.points(page.Fixed)
	switch {
	case g.holds():
		return text + " **holds**"
	case g.mayHold():
		return text + " if ≤ " + downTo(g.share)
	}
	return text + " open"
}

// Write is the section of a family with one sampler.
func (f *family) Write(d *page.Document) {
	d.Heading(2, "%s", page.Plain(f.name()))
	d.Paragraph("Points of each variant minus %s, from %s. *holds*: established with other questions on each side. *if ≤ c*: "+
		"established if the same questions were asked and at most this share of them changed its score. *open*: not established.",
		page.Plain(f.baseline), page.Plain(strings.Join(f.blocks, " and ")))
	table := page.LinesOf(f.variants)
	table.Column("variant", func(v *variant) string { return page.Plain(v.selector) })
	for _, s := range f.shots {
		table.Column(">"+shotsHead(s), func(v *variant) string {
			if i := slices.IndexFunc(v.gaps, func(g *gap) bool { return g.shots == s }); i >= 0 {
				return v.gaps[i].cell()
			}
			return "–"
		})
	}
	if len(f.shots) > 1 {
		ofMean := func(head string, cell func(*gap) string) {
			table.Column(head, func(v *variant) string {
				if len(v.means) == 0 {
					return "–"
				}
				return cell(v.means[0])
			})
		}
		ofMean(">mean", (*gap).cell)
		ofMean(">questions to settle the mean (10 % change)", func(g *gap) string { return countCell(g.needed(math.Sqrt(0.10))) })
		ofMean(">(unpaired)", func(g *gap) string { return countCell(g.needed(g.se * math.Sqrt(float64(f.n)))) })
	}
	d.Table(table.Header, table.Rows)
	f.writeBounds(d)
	var items []string
	if text := f.bestOf(); text != "" {
		items = append(items, text)
	}
	if items = append(items, f.left...); len(items) > 0 {
		d.List(items...)
	}
}

func shotsHead(n int) string {
	if n == 1 {
		return "1 shot"
	}
	return fmt.Sprintf("%d shots", n)
}

func countCell(n int) string {
	if n == 0 {
		return "–"
	}
	if n > 1_000_000 {
		return "over 1,000,000"
	}
	return page.Thousands(stats.RoundUp(n))
}

// writeBounds says how large a difference must be on so many questions.
func (f *family) writeBounds(d *page.Document) {
	m := len(f.all())
	quantile := distuv.UnitNormal.Quantile
	one, corrected := quantile(0.975), quantile(1-0.025/float64(m))
	power := one + quantile(0.8)
	typical := list.Map(f.all(), func(g *gap) float64 { return g.se })
	row := func(name string, se float64) []string {
		return []string{name, fmt.Sprintf("%.2f", 100*se), fmt.Sprintf("%.1f", 100*one*se), fmt.Sprintf("%.1f", 100*corrected*se),
			fmt.Sprintf("%.1f", 100*power*se)}
	}
	rows := [][]string{row("unpaired", stat.Middle(typical))}
	for _, share := range slices.Backward(publishedShares()) {
		rows = append(rows, row(fmt.Sprintf("paired, %.0f %% change", 100*share), f.pairedSE(share)))
	}
	d.Paragraph("How large a difference must be on %s, in points:", page.Plural(f.n, "question"))
	d.Table([]string{"bound", ">standard error", ">to be significant alone", fmt.Sprintf(">as the largest of %d", m),
		">to be found with 80 % power"}, rows)
}

// bestOf holds the best variant's lead against the luck of the best of several.
func (f *family) bestOf() string {
	n := len(f.variants)
	if n < 3 {
		return ""
	}
	lead := func(v *variant) *gap { return slices.Concat(v.means, v.gaps)[0] }
	best := slices.MaxFunc(f.variants, func(a, b *variant) int { return cmp.Compare(lead(a).difference, lead(b).difference) })
	if lead(best).difference <= 0 {
		return ""
	}
	luck := list.Map(publishedShares(), func(share float64) string {
		return fmt.Sprintf("%.1f", 100*stats.LuckOf(n)*f.pairedSE(share)/math.Sqrt2)
	})
	return fmt.Sprintf("The best of %d variants is %s, +%s. If all of them were as good as %s, the best of %d would still look about "+
		"%s points better when 5, 10 or 20 %% of the questions change.",
		n, page.Plain(best.selector), inPoints(lead(best)), page.Plain(f.baseline), n,
		luck[0]+", "+luck[1]+" or "+luck[2])
}

// writeMany gives a line to each table with several samplers.
func writeMany(d *page.Document, families []*family) {
	if len(families) == 0 {
		return
	}
	d.Heading(2, "Smaller tables")
	d.Paragraph("Each compares one selector with the one before it, for several samplers. Counts of comparisons, each corrected for " +
		"those of its table.")
	var rows [][]string
	for _, f := range families {
		counts := [4]int{}
		var largest *gap
		for _, g := range f.all() {
			if largest == nil || math.Abs(g.difference) > math.Abs(largest.difference) {
				largest = g
			}
			switch {
			case g.holds():
				counts[0]++
			case g.mayHold() && g.share >= 0.10:
				counts[1]++
			case g.mayHold() && g.share >= 0.05:
				counts[2]++
			default:
				counts[3]++
			}
		}
		what := fmt.Sprintf("%s over %s, %s", page.Plain(f.variants[0].selector), page.Plain(f.baseline),
			page.Plain(strings.Join(f.blocks, " and ")))
		if len(f.variants) > 1 {
			what = fmt.Sprintf("%s over %s", page.Plural(len(f.variants), "variant"), page.Plain(f.baseline))
		}
		row := []string{page.Plain(f.name()), what, largest.points(page.Fixed)}
		rows = append(rows, append(row, list.Map(counts[:], func(n int) string { return fmt.Sprint(n) })...))
	}
	d.Table([]string{"table", "comparison", ">largest", ">hold", ">hold if ≤ 10 %", ">hold if ≤ 5 %", ">open"}, rows)
}
