package published

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
	"fulcrum/internal/regular"
	"fulcrum/reports/page"
	"fulcrum/reports/stats"
)

// publishedTable is a file of published accuracies: {"what": …, "rows": [{"dataset", "vlm", "selector",
// "sampler", "samples", "shots", "accuracy", "source", "section", "note"}, …], "notes": […]}.
type publishedTable struct {
	path string
	what string
	rows []publishedRow
}

// publishedRow is one accuracy in percent. Of its texts only dataset and selector must be there.
type publishedRow struct {
	Source   string   `json:"source"`
	Section  string   `json:"section"`
	Dataset  string   `json:"dataset"`
	VLM      string   `json:"vlm"`
	Selector string   `json:"selector"`
	Sampler  string   `json:"sampler"`
	Samples  *int     `json:"samples"` // questions; null where the source does not say
	Shots    *int     `json:"shots"`
	Accuracy *float64 `json:"accuracy"`
	number   int      // in the file, from 1
}

// Report writes, as markdown, what a file of published accuracies allows to conclude, without the
// scores of single questions: for every variant against the baseline of its table, at every number of
// shots and on their mean. Errors name the file and the row.
func Report(path string) (*page.Document, error) {
	t, err := readPublished(path)
	if err != nil {
		return nil, err
	}
	families := t.families()
	if len(families) == 0 {
		return nil, fmt.Errorf("%s: %s, but no two selectors share data set, model, number of questions and shots: nothing to compare",
			path, page.Plural(len(t.rows), "row"))
	}
	return t.report(families), nil
}

func readPublished(path string) (*publishedTable, error) {
	data, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		What  string            `json:"what"`
		Rows  []json.RawMessage `json:"rows"`
		Notes []string          `json:"notes"`
	}
	if err := jsonwords.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s: not a file of published accuracies {\"rows\": [{\"dataset\", \"selector\", \"samples\", \"shots\", "+
			"\"accuracy\"}, …]}: %w", path, err)
	}
	if len(file.Rows) == 0 {
		return nil, fmt.Errorf("%s: no rows: want {\"rows\": "+
			"[{\"dataset\", \"selector\", \"samples\", \"shots\", \"accuracy\"}, …]}", path)
	}
	t := &publishedTable{path: path, what: file.What}
	for i, raw := range file.Rows {
		row := publishedRow{number: i + 1}
		if err := jsonwords.Unmarshal(raw, &row); err != nil {
			return nil, fmt.Errorf("%s: row %d: %w", path, i+1, err)
		}
		if err := row.Validate(); err != nil {
			return nil, fmt.Errorf("%s: row %d: %w", path, i+1, err)
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

func (r publishedRow) Validate() error {
	switch {
	case r.Dataset == "":
		return fmt.Errorf("no dataset")
	case r.Selector == "":
		return fmt.Errorf("no selector")
	case r.Shots == nil || *r.Shots < 0:
		return fmt.Errorf("no shots: want a whole number from 0 on")
	case r.Accuracy == nil:
		return fmt.Errorf("no accuracy")
	case !(*r.Accuracy >= 0 && *r.Accuracy <= 100):
		return fmt.Errorf("accuracy %g: want percent, from 0 to 100", *r.Accuracy)
	case r.Samples != nil && *r.Samples < 2:
		return fmt.Errorf("samples %d: want at least 2 questions, or null where they are not known", *r.Samples)
	}
	return nil
}

// questions is the number of questions, 0 where it is not known.
func (r publishedRow) questions() int { return option.Or(r.Samples, 0) }

// block names a table as it was printed: a section of a source.
func (r publishedRow) block() string { return strings.TrimSpace(r.Source + " " + r.Section) }

// otherQuestions recognises selectors that were scored on the questions they were trained with.
var otherQuestions = regexp.MustCompile(`(?i)\btrain(ing)? (split|set)\b`)

// family is a baseline and the variants that stand beside it: comparisons that are read together.
type family struct {
	dataset, vlm string
	n            int      // questions
	blocks       []string // where its rows were printed
	baseline     string
	shots        []int
	samplers     []string
	variants     []*variant
	left         []string // sentences: what was not compared, and why
}

type variant struct {
	selector string
	gaps     []*gap // at every sampler and number of shots that the baseline has too
	means    []*gap // over the shots, by sampler
}

// gap is a published difference, variant − baseline, as a share: 0.01 is one point.
type gap struct {
	sampler    string
	shots      int // 0: the mean over shots
	difference float64
	se         float64 // bound on its standard error if the questions were not the same ones
	p          float64 // two-sided, of that, corrected (Holm) for the comparisons of the family
	share      float64 // it holds, corrected, as long as no more than this share of the questions changed
}

// families compares each printed table with its baseline: the selector called so in it, else the one
// called so in another table on the same data, model and questions, else its first selector. The table
// with the most questions comes first.
func (t *publishedTable) families() []*family {
	type set struct {
		dataset, vlm string
		n            int
	}
	setOf := func(r publishedRow) set { return set{r.Dataset, r.VLM, r.questions()} }
	type key struct {
		set
		block string
	}
	known := slices.DeleteFunc(slices.Clone(t.rows), func(r publishedRow) bool { return r.questions() == 0 })
	blocks := stats.GroupBy(known, func(r publishedRow) key { return key{setOf(r), r.block()} })
	fair := func(r publishedRow) bool { return !otherQuestions.MatchString(r.Selector) }
	named := func(block []publishedRow) string {
		for _, r := range block {
			if strings.Contains(strings.ToLower(r.Selector), "baseline") && fair(r) {
				return r.Selector
			}
		}
		return ""
	}
	var out []*family
	of := map[int]*family{} // by the block of the baseline
	for i, block := range blocks {
		first := block[max(slices.IndexFunc(block, fair), 0)]
		home, baseline := i, named(block)
		if baseline == "" {
			for k, other := range blocks {
				if setOf(other[0]) == setOf(first) && named(other) != "" {
					home, baseline = k, named(other)
				}
			}
		}
		f := of[home]
		if f == nil {
			f = &family{dataset: first.Dataset, vlm: first.VLM, n: first.questions(), baseline: cmp.Or(baseline, first.Selector)}
			of[home] = f
			out = append(out, f)
		}
		f.add(first.block(), block, blocks[home])
	}
	out = slices.DeleteFunc(out, func(f *family) bool { return len(f.variants) == 0 })
	for _, f := range out {
		f.settle()
	}
	slices.SortStableFunc(out, func(a, b *family) int { return cmp.Compare(b.n, a.n) })
	return out
}

// add takes the variants of a printed table. A number printed twice counts as it stands first.
func (f *family) add(block string, rows, home []publishedRow) {
	f.blocks = append(f.blocks, block)
	leave := func(what, why string) {
		if text := page.Plain(what) + " is left out: " + why + "."; !slices.Contains(f.left, text) {
			f.left = append(f.left, text)
		}
	}
	for _, r := range rows {
		if r.Selector == f.baseline {
			continue
		}
		if otherQuestions.MatchString(r.Selector) {
			leave(r.Selector, "it was scored on other questions")
			continue
		}
		at := slices.IndexFunc(home, func(b publishedRow) bool {
			return b.Selector == f.baseline && b.Sampler == r.Sampler && *b.Shots == *r.Shots
		})
		if at < 0 {
			leave(strings.TrimSpace(r.Selector+" "+r.Sampler)+" at "+shotsHead(*r.Shots), page.Plain(f.baseline)+" has no such score")
			continue
		}
		i := slices.IndexFunc(f.variants, func(v *variant) bool { return v.selector == r.Selector })
		if i < 0 {
			i, f.variants = len(f.variants), append(f.variants, &variant{selector: r.Selector})
		}
		v := f.variants[i]
		same := func(g *gap) bool { return g.sampler == r.Sampler && g.shots == *r.Shots }
		if slices.ContainsFunc(v.gaps, same) {
			continue
		}
		a, b := *r.Accuracy/100, *home[at].Accuracy/100
		v.gaps = append(v.gaps, &gap{sampler: r.Sampler, shots: *r.Shots, difference: a - b,
			se: math.Sqrt((a*(1-a) + b*(1-b)) / float64(f.n))})
		if !slices.Contains(f.shots, *r.Shots) {
			f.shots = append(f.shots, *r.Shots)
		}
		if !slices.Contains(f.samplers, r.Sampler) {
			f.samplers = append(f.samplers, r.Sampler)
		}
	}
}

// settle adds the means over shots and says of every gap what it would take to hold. One question may
// answer alike at every number of shots, so a mean is taken to be as uncertain as one of its parts.
func (f *family) settle() {
	slices.Sort(f.shots)
	for _, v := range f.variants {
		for _, sampler := range f.samplers {
			mean := &gap{sampler: sampler}
			count := 0.0
			for _, g := range v.gaps {
				if g.sampler == sampler {
					mean.difference, mean.se, count = mean.difference+g.difference, mean.se+g.se, count+1
				}
			}
			if count > 1 {
				mean.difference, mean.se = mean.difference/count, mean.se/count
				v.means = append(v.means, mean)
			}
		}
	}
	all := f.all()
	p := make([]float64, len(all))
	for i, g := range all {
		p[i] = 1
		if g.se > 0 {
			p[i] = 2 * distuv.UnitNormal.CDF(-math.Abs(g.difference)/g.se)
		}
	}
	for i, adjusted := range stats.Holm(p) {
		all[i].p = adjusted
	}
	// Paired differences lie in [-1, 1], so at most a share c of changed questions gives a standard
	// error of at most √(c/n). Holm's steps, solved for c.
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b *gap) int { return cmp.Compare(math.Abs(b.difference), math.Abs(a.difference)) })
	share := 1.0
	for i, g := range order {
		z := distuv.UnitNormal.Quantile(1 - 0.025/float64(len(order)-i))
		share = min(share, float64(f.n)*g.difference*g.difference/(z*z))
		g.share = share
	}
}

// all are the family's comparisons.
func (f *family) all() []*gap {
	var out []*gap
	for _, v := range f.variants {
		out = append(append(out, v.gaps...), v.means...)
	}
	return out
}

// holds says that a gap is established whether or not the questions were the same ones.
func (g *gap) holds() bool { return g.p < 0.05 }

// mayHold says that it is established if few enough questions changed; a difference of 1 point needs at
// least 1 % of them to change.
func (g *gap) mayHold() bool {
	return g.holds() || g.share >= math.Abs(g.difference) && g.share >= 0.005
}

// pairedSE bounds the standard error where a share of the questions changed.
func (f *family) pairedSE(share float64) float64 { return math.Sqrt(share / float64(f.n)) }

// needed is how many questions settle a gap with 80 % power as the only comparison, when differences of single questions have
// this standard deviation.
func (g *gap) needed(sd float64) int { return stats.QuestionsNeeded(g.difference, sd, 0.05, 0.8) }

// name is what a family is called.
func (f *family) name() string {
	parts := []string{f.dataset}
	if f.vlm != "" {
		parts = append(parts, f.vlm)
	}
	return strings.Join(append(parts, page.Plural(f.n, "question")), ", ")
}
