package published

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/stats"
)

// series are a selector's accuracies over the numbers of shots of one printed table.
type series struct {
	row      publishedRow // the first of them
	shots    []int
	accuracy []float64
}

func (s *series) name() string {
	text := page.Plain(s.row.Selector)
	if s.row.Sampler != "" {
		text += " (" + page.Plain(s.row.Sampler) + ")"
	}
	return text
}

func (s *series) Where() string {
	text := page.Plain(s.row.block())
	if n := s.row.questions(); n > 0 {
		text += ", " + page.Plural(n, "question")
	}
	return strings.TrimPrefix(text, ", ")
}

// numbers are a series as a text: equal where two agree at every number of shots.
func (s *series) numbers() string { return fmt.Sprint(s.shots, s.accuracy) }

// allSeries collects them in the order of the file.
func (t *publishedTable) allSeries() []*series {
	type key struct {
		block, dataset, vlm, selector, sampler string
		n                                      int
	}
	var out []*series
	for _, rows := range stats.GroupBy(t.rows, func(r publishedRow) key {
		return key{r.block(), r.Dataset, r.VLM, r.Selector, r.Sampler, r.questions()}
	}) {
		s := &series{row: rows[0]}
		for _, r := range rows {
			s.shots, s.accuracy = append(s.shots, *r.Shots), append(s.accuracy, *r.Accuracy)
		}
		out = append(out, s)
	}
	return out
}

// repeatedShots finds a selector whose accuracy is the same at several numbers of shots.
func repeatedShots(all []*series) []string {
	var out []string
	for _, s := range all {
		for i := range s.shots {
			if slices.Index(s.accuracy, s.accuracy[i]) < i {
				continue // told there
			}
			var same []string
			for k, shots := range s.shots {
				if s.accuracy[k] == s.accuracy[i] {
					same = append(same, fmt.Sprint(shots))
				}
			}
			if len(same) > 2 { // two agree now and then
				out = append(out, fmt.Sprintf("%s has the same accuracy, %.2f, at %s shots (%s). So many means seldom agree to the last "+
					"digit: was the number of shots really changed?", s.name(), s.accuracy[i], page.Joined(same), s.Where()))
			}
		}
	}
	return out
}

// repeatedSelectors finds settings of different names with the same accuracies on the same data.
func repeatedSelectors(all []*series) []string {
	type key struct {
		dataset, vlm, numbers string
		n                     int
	}
	var out []string
	for _, same := range stats.GroupBy(all, func(s *series) key {
		return key{s.row.Dataset, s.row.VLM, s.numbers(), s.row.questions()}
	}) {
		names := list.Unique(list.Map(same, (*series).name))
		if first := same[0]; len(names) > 1 && len(first.shots) > 1 {
			out = append(out, fmt.Sprintf("%s have the same accuracies at all %d numbers of shots (%s, %s): one run under several "+
				"names, or settings without effect.", page.Joined(names), len(first.shots), page.Plain(first.row.VLM), first.Where()))
		}
	}
	return out
}

// pair is one setting in two series, the earlier one first.
type pair struct{ b, a *series }

// pairsOf lists the pairs of series that are alike.
func pairsOf(all []*series, alike func(a, b *series) bool) []pair {
	var out []pair
	for i, a := range all {
		for _, b := range all[:i] {
			if alike(a, b) {
				out = append(out, pair{b, a})
			}
		}
	}
	return out
}

// sameSetting says whether two series are of one selector and sampler on the same data and model.
func sameSetting(a, b *series) bool {
	return a.row.Dataset == b.row.Dataset && a.row.VLM == b.row.VLM && a.row.Selector == b.row.Selector && a.row.Sampler == b.row.Sampler
}

// repeatedSizes finds a selector with the same accuracies on different numbers of questions.
func repeatedSizes(all []*series) []string {
	type key struct{ block, dataset, vlm, selector string }
	alike := func(a, b *series) bool {
		return sameSetting(a, b) && a.row.block() == b.row.block() && a.row.questions() != b.row.questions() && len(a.shots) > 1 &&
			a.numbers() == b.numbers()
	}
	var out []string
	for _, pairs := range stats.GroupBy(pairsOf(all, alike), func(p pair) key {
		return key{p.a.row.block(), p.a.row.Dataset, p.a.row.VLM, p.a.row.Selector}
	}) {
		var sizes, samplers []string
		for _, p := range pairs {
			sizes = append(sizes, page.Thousands(p.b.row.questions()), page.Thousands(p.a.row.questions()))
			samplers = append(samplers, p.a.row.Sampler)
		}
		sizes, samplers = list.Unique(sizes), list.Unique(samplers)
		row := pairs[0].a.row
		text := fmt.Sprintf("%s has the same accuracies for %s questions (%s, %s", page.Plain(row.Selector), page.Joined(sizes),
			page.Plain(row.block()), page.Plain(row.VLM))
		if len(samplers) > 1 {
			text += fmt.Sprintf(", %d samplers", len(samplers))
		}
		out = append(out, text+"): they are copies of one run, of an unknown number of questions.")
	}
	return out
}

// contradictions finds one setting with different numbers in two printed tables.
func contradictions(all []*series) []string {
	type key struct{ dataset, vlm, selector, blocks string }
	alike := func(a, b *series) bool {
		return sameSetting(a, b) && a.row.questions() == b.row.questions() && a.row.questions() > 0
	}
	blocks := func(p pair) string { return page.Plain(p.b.row.block()) + " and " + page.Plain(p.a.row.block()) }
	var out []string
	for _, pairs := range stats.GroupBy(pairsOf(all, alike), func(p pair) key {
		return key{p.a.row.Dataset, p.a.row.VLM, p.a.row.Selector, blocks(p)}
	}) {
		cells, differ, largest, example := 0, 0, 0.0, ""
		for _, p := range pairs {
			for x, shots := range p.a.shots {
				y := slices.Index(p.b.shots, shots)
				if y < 0 {
					continue
				}
				cells++
				gap := math.Abs(p.a.accuracy[x] - p.b.accuracy[y])
				differ += stats.BoolInt(gap > 0)
				if gap > largest {
					largest = gap
					example = fmt.Sprintf("%.2f and %.2f at %s with %s, %s", p.b.accuracy[y], p.a.accuracy[x], shotsHead(shots),
						page.Plain(p.a.row.Sampler), page.Plural(p.a.row.questions(), "question"))
				}
			}
		}
		if row := pairs[0].a.row; differ > 0 {
			out = append(out, fmt.Sprintf("%s on %s (%s) differs between %s in %d of %d numbers, most %s: not the same run, or not the "+
				"same questions.", page.Plain(row.Selector), page.Plain(row.Dataset), page.Plain(row.VLM), blocks(pairs[0]), differ, cells,
				example))
		}
	}
	return out
}

// impossibleMeans finds accuracies that no n scores have as their mean when scores come in tenths, as
// the VQA accuracy over ten answers does (the GRIM test, Brown and Heathers 2017). Where many numbers of
// a file miss, its scores come in other steps and nothing is said.
func (t *publishedTable) impossibleMeans() []string {
	type key struct{ block, selector string }
	tested := slices.DeleteFunc(slices.Clone(t.rows), func(r publishedRow) bool {
		n := r.questions()
		return n == 0 || 10/float64(n) <= 0.02 // steps finer than the printed digits exclude nothing
	})
	fits := func(r publishedRow) bool {
		step := 10 / float64(r.questions()) // of the mean, in percent
		return math.Abs(*r.Accuracy-step*math.Round(*r.Accuracy/step)) <= 0.005+1e-9
	}
	wrong := len(slices.DeleteFunc(slices.Clone(tested), fits))
	if 4*wrong > len(tested) {
		return nil
	}
	var out []string
	for _, rows := range stats.GroupBy(tested, func(r publishedRow) key { return key{r.block(), r.Selector} }) {
		missed := slices.DeleteFunc(slices.Clone(rows), fits)
		if len(missed) == 0 {
			continue
		}
		sizes := list.Unique(list.Map(missed, func(r publishedRow) string { return page.Thousands(r.questions()) }))
		first := missed[0]
		out = append(out, fmt.Sprintf("%d of %d accuracies of %s (%s) cannot be the mean of %s scores, as stated: scores come in "+
			"tenths, and no sum of them gives %.2f of %s. Of all %s that can be tested so, %s fit.", len(missed), len(rows),
			page.Plain(first.Selector), page.Plain(first.block()), page.Joined(sizes), *first.Accuracy, page.Thousands(first.questions()),
			page.Plural(len(tested), "accuracy"), page.Thousands(len(tested)-wrong)))
	}
	return out
}
