package published

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/stats"
)

// The file in testdata is a part of a public project's printed accuracies.
func TestPublishedTable(t *testing.T) {
	d, err := Report(filepath.Join("testdata", "published", "metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, filepath.Join("testdata", "published", "report.md"), []byte(d.Text()))
}

// What one can and cannot conclude from all of it.
func TestPublishedReference(t *testing.T) {
	d, err := Report(golden.Shared(t, "parity", "metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := d.Text()
	for _, want := range []string{
		"**VQAv2, Qwen2.5-VL-3B-Instruct, 1,000 questions**: Balanced V3 (2,809 queries) against Balanced V2 (1,894 queries), 3 " +
			"comparisons. All 3 gains are established",
		"19 variants against Baseline (V2), 95 comparisons. Of 55 gains, up to 1.7 points, none is established as published",
		"v3_1layer against v2, 3 comparisons. None of 3 gains is established; the largest is 2.6 points.",
		"| unpaired | 2.50 | 4.9 | 8.7 | 7.0 |",
		"| paired, 5 % change | 0.79 | 1.5 | 2.7 | 2.2 |",
		"plan 5 epoch 50 (RandSampler) and plan 5+8 (relevance shaping) epoch 50 (RandSampler) have the same accuracies at all 4 " +
			"numbers of shots",
		"Balanced V3 (2,809 queries) (RandSampler) has the same accuracy, 72.03, at 2, 3 and 4 shots",
		"v0 has the same accuracies for 100, 200 and 300 questions (README.md 3.3.1, Flamingo-3B, 4 samplers)",
		"46 of 48 accuracies of v0 (README.md 3.3.1) cannot be the mean of 100, 200 and 300 scores",
		"v0 on OKVQA (Flamingo-3B) differs between README.md 3.2 and README.md 3.3.1 in 48 of 48 numbers",
		"8 accuracies without a number of questions stand in no comparison.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say: %s", want)
		}
	}
}

// The shares are Holm's rule solved for c: just below its share a gap is rejected with all before it,
// just above it is not.
func TestPublishedSharesAreHolms(t *testing.T) {
	table, err := readPublished(filepath.Join("testdata", "published", "metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, f := range table.families() {
		all := f.all()
		for _, g := range all {
			if g.share < 1e-6 || g.share >= 1 {
				continue
			}
			tested++
			for _, c := range []float64{0.999 * g.share, 1.001 * g.share} {
				p := make([]float64, len(all))
				at := 0
				for i, o := range all {
					p[i] = math.Erfc(math.Abs(o.difference) / f.pairedSE(c) / math.Sqrt2)
					if o == g {
						at = i
					}
				}
				if got, want := stats.Holm(p)[at] < 0.05, c < g.share; got != want {
					t.Errorf("%s: difference %g, share %g of %g: rejected %v, want %v", f.name(), g.difference, c, g.share, got, want)
				}
			}
		}
	}
	if tested < 90 {
		t.Errorf("only %d gaps", tested)
	}
}

func TestPublishedErrorsNameFileAndRow(t *testing.T) {
	row := func(fields string) string {
		return `{"rows": [{"dataset": "d", "selector": "a", "samples": 10, "shots": 1, "accuracy": 50}, {` + fields + `}]}`
	}
	for _, tc := range []struct{ name, text, want string }{
		{"no JSON", "accuracy", "not a file of published accuracies"},
		{"no rows", `{"rows": []}`, "no rows: want"},
		{"an accuracy that is text", row(`"dataset": "d", "selector": "b", "samples": 10, "shots": 1, "accuracy": "50"`),
			"row 2: accuracy: got a JSON string, want a number"},
		{"above 100", row(`"dataset": "d", "selector": "b", "samples": 10, "shots": 1, "accuracy": 148`),
			"row 2: accuracy 148: want percent, from 0 to 100"},
		{"no accuracy", row(`"dataset": "d", "selector": "b", "samples": 10, "shots": 1`), "row 2: no accuracy"},
		{"no selector", row(`"dataset": "d", "samples": 10, "shots": 1, "accuracy": 1`), "row 2: no selector"},
		{"no shots", row(`"dataset": "d", "selector": "b", "samples": 10, "accuracy": 1`), "row 2: no shots"},
		{"one question", row(`"dataset": "d", "selector": "b", "samples": 1, "shots": 1, "accuracy": 1`),
			"row 2: samples 1: want at least 2"},
		{"nothing to compare", row(`"dataset": "e", "selector": "b", "samples": 10, "shots": 1, "accuracy": 1`),
			"2 rows, but no two selectors share"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "table.json")
			if err := os.WriteFile(path, []byte(tc.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Report(path); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %s: …%s…", err, path, tc.want)
			}
		})
	}
}

// What was scored on the questions that it was trained with is no baseline, also where nothing is called one.
func TestTrainingQuestionsAreNoBaseline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.json")
	rows := []string{}
	for name, accuracy := range map[string]string{"a (train split)": "50", "b": "20", "c": "30"} {
		rows = append(rows, `{"dataset": "d", "selector": "`+name+`", "samples": 100, "shots": 1, "accuracy": `+accuracy+`}`)
	}
	slices.Sort(rows)
	rows = append(rows, `{"dataset": "d", "selector": "c", "samples": 100, "shots": 2, "accuracy": 40}`)
	if err := os.WriteFile(path, []byte(`{"rows": [`+strings.Join(rows, ",")+`]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	table, err := readPublished(path)
	if err != nil {
		t.Fatal(err)
	}
	left := []string{"a (train split) is left out: it was scored on other questions.", "c at 2 shots is left out: b has no such score."}
	if f := table.families(); len(f) != 1 || f[0].baseline != "b" || len(f[0].variants) != 1 || !slices.Equal(f[0].left, left) {
		t.Errorf("%+v", f)
	}
}
