package published

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/reports/page"
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

// sameNumbers says whether two series agree at every number of shots, at least two of them.
func (s *series) sameNumbers(o *series) bool {
	return len(s.shots) >= 2 && slices.Equal(s.shots, o.shots) && slices.Equal(s.accuracy, o.accuracy)
}

// allSeries collects them in the order of the file.
func (t *publishedTable) allSeries() []*series {
	type key struct {
		block, dataset, vlm, selector, sampler string
		n                                      int
	}
	index := map[key]*series{}
	var out []*series
	for _, r := range t.rows {
		k := key{r.block(), r.Dataset, r.VLM, r.Selector, r.Sampler, r.questions()}
		s := index[k]
		if s == nil {
			s = &series{row: r}
			index[k] = s
			out = append(out, s)
		}
		s.shots, s.accuracy = append(s.shots, *r.Shots), append(s.accuracy, *r.Accuracy)
	}
	return out
}

// oddRows names numbers that repeat or contradict each other, or cannot be the mean of so many scores.
func (t *publishedTable) oddRows() []string {
	all := t.allSeries()
	return slices.Concat(repeatedShots(all), repeatedSelectors(all), repeatedSizes(all), contradictions(all), t.impossibleMeans())
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
	var out []string
	told := map[*series]bool{}
	for i, a := range all {
		if told[a] {
			continue
		}
		names := []string{a.name()}
		for _, b := range all[i+1:] {
			if a.row.Dataset != b.row.Dataset || a.row.VLM != b.row.VLM || a.row.questions() != b.row.questions() || !a.sameNumbers(b) {
				continue
			}
			told[b] = true
			if !slices.Contains(names, b.name()) {
				names = append(names, b.name())
			}
		}
		if len(names) > 1 {
			out = append(out, fmt.Sprintf("%s have the same accuracies at all %d numbers of shots (%s, %s): one run under several "+
				"names, or settings without effect.", page.Joined(names), len(a.shots), page.Plain(a.row.VLM), a.Where()))
		}
	}
	return out
}

// repeatedSizes finds a selector with the same accuracies on different numbers of questions.
func repeatedSizes(all []*series) []string {
	type key struct{ block, dataset, vlm, selector string }
	var keys []key
	sizes, samplers := map[key][]string{}, map[key][]string{}
	for i, a := range all {
		for _, b := range all[:i] {
			k := key{a.row.block(), a.row.Dataset, a.row.VLM, a.row.Selector}
			if (key{b.row.block(), b.row.Dataset, b.row.VLM, b.row.Selector}) != k || a.row.Sampler != b.row.Sampler ||
				a.row.questions() == b.row.questions() || !a.sameNumbers(b) {
				continue
			}
			if sizes[k] == nil {
				keys = append(keys, k)
			}
			for _, s := range []*series{b, a} {
				if n := page.Thousands(s.row.questions()); !slices.Contains(sizes[k], n) {
					sizes[k] = append(sizes[k], n)
				}
			}
			if !slices.Contains(samplers[k], a.row.Sampler) {
				samplers[k] = append(samplers[k], a.row.Sampler)
			}
		}
	}
	var out []string
	for _, k := range keys {
		text := fmt.Sprintf("%s has the same accuracies for %s questions (%s, %s", page.Plain(k.selector), page.Joined(sizes[k]),
			page.Plain(k.block), page.Plain(k.vlm))
		if len(samplers[k]) > 1 {
			text += fmt.Sprintf(", %d samplers", len(samplers[k]))
		}
		out = append(out, text+"): they are copies of one run, of an unknown number of questions.")
	}
	return out
}

// contradictions finds one setting with different numbers in two printed tables.
func contradictions(all []*series) []string {
	type key struct {
		dataset, vlm, selector, blocks string
	}
	type found struct {
		cells, differ int
		example       string
		largest       float64
	}
	var keys []key
	of := map[key]*found{}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.row.Dataset != b.row.Dataset || a.row.VLM != b.row.VLM || a.row.Selector != b.row.Selector ||
				a.row.Sampler != b.row.Sampler || a.row.questions() != b.row.questions() || a.row.questions() == 0 {
				continue
			}
			k := key{a.row.Dataset, a.row.VLM, a.row.Selector, page.Plain(b.row.block()) + " and " + page.Plain(a.row.block())}
			if of[k] == nil {
				keys, of[k] = append(keys, k), &found{}
			}
			for x, shots := range a.shots {
				y := slices.Index(b.shots, shots)
				if y < 0 {
					continue
				}
				of[k].cells++
				if gap := math.Abs(a.accuracy[x] - b.accuracy[y]); gap > 0 {
					of[k].differ++
					if gap > of[k].largest {
						of[k].largest = gap
						of[k].example = fmt.Sprintf("%.2f and %.2f at %s with %s, %s", b.accuracy[y], a.accuracy[x], shotsHead(shots),
							page.Plain(a.row.Sampler), page.Plural(a.row.questions(), "question"))
					}
				}
			}
		}
	}
	var out []string
	for _, k := range keys {
		if f := of[k]; f.differ > 0 {
			out = append(out, fmt.Sprintf("%s on %s (%s) differs between %s in %d of %d numbers, most %s: not the same run, or not the "+
				"same questions.", page.Plain(k.selector), page.Plain(k.dataset), page.Plain(k.vlm), k.blocks, f.differ, f.cells,
				f.example))
		}
	}
	return out
}

// impossibleMeans finds accuracies that no n scores have as their mean when scores come in tenths, as
// the VQA accuracy over ten answers does (the GRIM test, Brown and Heathers 2017). Where many numbers of
// a file miss, its scores come in other steps and nothing is said.
func (t *publishedTable) impossibleMeans() []string {
	type key struct{ block, selector string }
	type found struct {
		missed, counted int
		sizes           []string
		example         string
	}
	var keys []key
	of := map[key]*found{}
	tested, wrong := 0, 0
	for _, r := range t.rows {
		n := r.questions()
		if n == 0 || 10/float64(n) <= 0.02 { // steps finer than the printed digits exclude nothing
			continue
		}
		k := key{r.block(), r.Selector}
		if of[k] == nil {
			keys, of[k] = append(keys, k), &found{}
		}
		f := of[k]
		f.counted++
		tested++
		step := 10 / float64(n) // of the mean, in percent
		if off := math.Abs(*r.Accuracy - step*math.Round(*r.Accuracy/step)); off <= 0.005+1e-9 {
			continue
		}
		wrong++
		f.missed++
		if size := page.Thousands(n); !slices.Contains(f.sizes, size) {
			f.sizes = append(f.sizes, size)
		}
		if f.example == "" {
			f.example = fmt.Sprintf("%.2f of %s", *r.Accuracy, page.Thousands(n))
		}
	}
	if 4*wrong > tested {
		return nil
	}
	var out []string
	for _, k := range keys {
		if f := of[k]; f.missed > 0 {
			out = append(out, fmt.Sprintf("%d of %d accuracies of %s (%s) cannot be the mean of %s scores, as stated: scores come in "+
				"tenths, and no sum of them gives %s. Of all %s that can be tested so, %s fit.", f.missed, f.counted,
				page.Plain(k.selector), page.Plain(k.block), page.Joined(f.sizes), f.example, page.Plural(tested, "accuracy"),
				page.Thousands(tested-wrong)))
		}
	}
	return out
}
