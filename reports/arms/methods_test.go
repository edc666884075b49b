package arms

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// methodsOf are answers of 200 questions, so many of them right, other ones with each seed.
func methodsOf(seeds int, right map[string]float64, names ...string) (out []*Method) {
	for k, name := range names {
		m := &Method{Name: name, Shots: 2, Arm: Arm{Name: name, Metric: "accuracy"}}
		for q := range 200 {
			m.QueryIDs = append(m.QueryIDs, int64(q))
		}
		for seed := range seeds {
			scores := make([]float64, 200)
			for q := range scores {
				if float64((7*q+3*seed+11*k)%20) < 20*right[name] {
					scores[q] = 1
				}
			}
			m.Seeds, m.Scores = append(m.Seeds, int64(seed)), append(m.Scores, scores)
		}
		out = append(out, m)
	}
	return out
}

func TestCompareMethods(t *testing.T) {
	right := map[string]float64{"image": 0.4, "random": 0.1, "none": 0.4, "sft": 0.8, "placebo:sft": 0.1, "placebo:rce": 0.6}
	for _, seeds := range []int{1, 3} {
		table, err := CompareMethods(methodsOf(seeds, right, "image", "random", "none", "sft", "placebo:sft", "placebo:rce"))
		if err != nil {
			t.Fatal(err)
		}
		var d page.Document
		table.Findings(&d)
		text := d.Text()
		for _, want := range []string{"With 2 examples nearest by `image`, the model's accuracy on 200 held-out questions is **",
			"- **Better than `image`**: `sft` +", "- **Worse than `image`**: `random` −", "- **Not separable from `image`**: `none` ",
			"- `placebo:sft`, trained on permuted rewards, is not separable from `random`, ",
			"- `placebo:rce`, trained on permuted rewards, is better than `random`, +"} {
			if !strings.Contains(text, want) {
				t.Errorf("%d seeds: the findings lack %q:\n%s", seeds, want, text)
			}
		}
		rows := table.Table("", false).Texts()
		if len(rows) != 6 || rows[0][5] != "" || rows[3][7] != "better" || rows[2][1] != "0" || rows[3][1] != "2" {
			t.Errorf("%d seeds: rows %q", seeds, rows)
		}
	}
}

// Programs read all digits, people those that count; a later look widens the interval of a difference, and its heading says so.
func TestMethodTableNumbers(t *testing.T) {
	methods := methodsOf(1, map[string]float64{"image": 0.4, "sft": 0.5}, "image", "sft")
	methods[0].Scores[0][1] = 1.0 / 3
	for _, m := range methods {
		m.Look = stats.LookAt(3)
	}
	table, err := CompareMethods(methods)
	if err != nil {
		t.Fatal(err)
	}
	var csv, md strings.Builder
	if err := errors.Join(table.Table("", true).CSV(&csv), table.Table("", false).Markdown(&md)); err != nil {
		t.Fatal(err)
	}
	head, rows, _ := strings.Cut(csv.String(), "\n")
	interval := table.Methods[1].over.Interval
	for _, want := range []float64{table.Methods[0].percent(), 100 * interval.Low, 100 * interval.High} {
		if text := strconv.FormatFloat(want, 'g', -1, 64); !strings.Contains(rows, text) || strings.Contains(md.String(), text) {
			t.Errorf("want %s in the CSV alone:\n%s\n%s", text, csv.String(), md.String())
		}
	}
	if !strings.Contains(head, ",95% interval,") || !strings.Contains(head, ",99.66% interval of it,") {
		t.Errorf("the heading does not say how wide the intervals are: %s", head)
	}
}

// A p-value is corrected for the comparisons that are read together, the interval is that of one alone; answers of
// more seeds make them narrower.
func TestMethodsAreCorrectedTogether(t *testing.T) {
	right := map[string]float64{"image": 0.4, "sft": 0.5, "rce": 0.5, "random": 0.2}
	of := func(seeds int, names ...string) (width, p float64) {
		table, err := CompareMethods(methodsOf(seeds, right, names...))
		if err != nil {
			t.Fatal(err)
		}
		i := table.Methods[1].over.Interval
		return i.High - i.Low, table.Methods[1].over.PHolm
	}
	alone, p := of(1, "image", "random")
	if together, corrected := of(1, "image", "random", "sft", "rce"); together != alone || corrected <= p {
		t.Errorf("width %g and p %g alone, %g and %g of three", alone, p, together, corrected)
	}
	one, _ := of(1, "image", "sft")
	if several, _ := of(3, "image", "sft"); several >= one {
		t.Errorf("width %g with one seed and %g with three, of answers that differ by chance alone", one, several)
	}
}

// Each model has its own reference, its own findings and rows of its own, and is told from the method in evals.jsonl.
func TestMethodsOfSeveralModels(t *testing.T) {
	var methods []*Method
	var runs []*record.Run
	for k, model := range []string{"/models/a", "/models/b"} {
		of := methodsOf(1, map[string]float64{"image": []float64{0.2, 0.6}[k], "sft": 0.6}, "image", "sft")
		for _, m := range of {
			m.Model, m.Metric = model, "cider"
			runs = append(runs, &record.Run{Evaluations: []record.Evaluation{{Split: "held_out", Policy: m.Policy(), Metric: m.Metric, Shots: 2,
				QueryIDs: m.QueryIDs, Scores: m.Scores[0]}}})
		}
		methods = append(methods, of...)
	}
	table, err := CompareMethods(methods)
	if err != nil {
		t.Fatal(err)
	}
	var d page.Document
	table.Findings(&d)
	for _, want := range []string{"`/models/a`'s CIDEr-D × 100 on 200 held-out questions is **20.0**", "**Better than `image`**: `sft` +40",
		"`/models/b`'s CIDEr-D × 100 on 200 held-out questions is **60.0**", "**Not separable from `image`**: `sft` "} {
		if !strings.Contains(d.Text(), want) {
			t.Errorf("the findings lack %q:\n%s", want, d.Text())
		}
	}
	rows := table.Table("", false).Texts()
	if len(rows) != 4 || rows[1][0] != "/models/a" || rows[1][8] != "better" || rows[2][6] != "" || rows[3][8] == "better" {
		t.Errorf("rows %q", rows)
	}
	joined, err := JoinMethods(runs)
	if err != nil || len(joined.Methods) != 4 || joined.Methods[3].Model != "/models/b" || joined.Methods[3].Name != "sft" {
		t.Errorf("joined: %+v, %v", joined, err)
	}
}
