package tasks_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// rougeScores are one measure of a text, or of a golden (precision, recall, F1).
type rougeScores struct{ Precision, Recall, FMeasure float64 }

type rougeScored struct {
	ID                                int
	Rouge1, Rouge2, RougeL, RougeLsum rougeScores
}

func jsonl(t *testing.T, path string, lines ...any) string {
	t.Helper()
	var b strings.Builder
	for _, l := range lines {
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	write(t, path, b.String())
	return path
}

func scored(t *testing.T, path string) (out []rougeScored) {
	t.Helper()
	for line := range strings.Lines(read(t, path)) {
		var x rougeScored
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%s: %v in %s", path, err, line)
		}
		out = append(out, x)
	}
	return out
}

// task=evaluate gives the scores of Google's rouge_score for every recorded pair, with and without stems.
func TestEvaluateRougeGoldens(t *testing.T) {
	t.Parallel()
	type measures struct {
		Rouge1, Rouge2, RougeL, RougeLsum [3]float64
	}
	var goldens struct {
		Cases []struct {
			Target, Prediction string
			Plain, Stemmed     measures
		}
	}
	golden.JSON(t, golden.Shared(t, "seq2seq", "rouge_cases.json"), &goldens)
	if len(goldens.Cases) < 100 {
		t.Fatalf("%d cases", len(goldens.Cases))
	}
	work := t.TempDir()
	var predictions, references []any
	for i, c := range goldens.Cases {
		predictions = append(predictions, map[string]any{"id": i, "text": c.Prediction})
		references = append([]any{map[string]any{"id": i, "text": c.Target}}, references...) // in another order
	}
	p, r := jsonl(t, filepath.Join(work, "p.jsonl"), predictions...), jsonl(t, filepath.Join(work, "r.jsonl"), references...)
	for _, stem := range []bool{false, true} {
		out, dir := filepath.Join(work, fmt.Sprint(stem), "out.jsonl"), folder(t)
		got := mustRun(t, "task=evaluate", "evaluate.metric=rouge", "evaluate.predictions="+p, "evaluate.references="+r,
			"evaluate.out="+out, fmt.Sprintf("evaluate.stemmer=%t", stem), "evaluate.sentences=lines", "hydra.run.dir="+dir)
		lines := scored(t, out)
		if len(lines) != len(goldens.Cases) {
			t.Fatalf("%d lines for %d texts", len(lines), len(goldens.Cases))
		}
		mean := 0.0
		for i, l := range lines {
			want := goldens.Cases[i].Plain
			if stem {
				want = goldens.Cases[i].Stemmed
			}
			for name, pair := range map[string]struct {
				got  rougeScores
				want [3]float64
			}{"rouge1": {l.Rouge1, want.Rouge1}, "rouge2": {l.Rouge2, want.Rouge2}, "rougeL": {l.RougeL,
				want.RougeL}, "rougeLsum": {l.RougeLsum, want.RougeLsum}} {
				if l.ID != i {
					t.Fatalf("line %d has id %d", i+1, l.ID)
				}
				golden.Close(t, []float64{pair.got.Precision, pair.got.Recall, pair.got.FMeasure}, pair.want[:], 1e-12)
				if name == "rougeL" {
					mean += pair.got.FMeasure / float64(len(lines))
				}
			}
		}
		var summary struct {
			State      string
			Evaluation struct {
				Texts    int
				Measures []struct {
					Name     string
					FMeasure struct {
						Mean     float64
						Interval struct{ Low, High float64 }
					}
				}
			}
		}
		readJSON(t, filepath.Join(dir, "summary.json"), &summary)
		m := summary.Evaluation.Measures[2]
		golden.Close(t, []float64{m.FMeasure.Mean}, []float64{mean}, 1e-12)
		if i := m.FMeasure.Interval; m.Name != "rougeL" || !(i.Low < mean && mean < i.High) || summary.State != "done" ||
			summary.Evaluation.Texts != len(lines) {
			t.Errorf("summary %+v, mean %v", summary, mean)
		}
		shown := fmt.Sprintf("%.3f [", mean)
		for where, text := range map[string]string{"stdout": got.Stdout, "report.md": read(t, filepath.Join(dir, "report.md"))} {
			if !strings.Contains(text, shown) {
				t.Errorf("%s lacks %q:\n%s", where, shown, text)
			}
		}
		before := read(t, filepath.Join(dir, "report.md"))
		write(t, filepath.Join(dir, "report.md"), "")
		mustRun(t, "report", dir)
		if again := read(t, filepath.Join(dir, "report.md")); again != before {
			t.Errorf("the report made again differs:\n%s", again)
		}
	}
}

// Ids are texts or numbers, a line of generate.out is a prediction, and two evaluations compare.
func TestEvaluateRougeCompares(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	references := jsonl(t, filepath.Join(work, "r.jsonl"), map[string]any{"id": "a<b", "text": "the cat sat"},
		map[string]any{"id": 7, "text": "on the mat"}, map[string]any{"id": "c", "text": "x y z"})
	dirs := []string{folder(t), folder(t)}
	for i, texts := range [][3]string{{"the cat sat", "on the mat", "x y z"}, {"the cat", "on", "z"}} {
		p := jsonl(t, filepath.Join(work, fmt.Sprint(i)), map[string]any{"id": "a<b", "completion": texts[0],
			// jsonl escapes the <
			"completion_ids": []int{1}}, map[string]any{"id": 7, "completion": texts[1]}, map[string]any{"id": "c", "text": texts[2]})
		mustRun(t, "task=evaluate", "evaluate.metric=rouge", "evaluate.predictions="+p, "evaluate.references="+references,
			"hydra.run.dir="+dirs[i], "evidence.ledger="+filepath.Join(work, "looks.jsonl"))
		look := fmt.Sprintf("This was look %d at these questions", 1+i)
		if report := read(t, filepath.Join(dirs[i], "report.md")); !strings.Contains(report, look) {
			t.Errorf("the report lacks %q:\n%s", look, report)
		}
	}
	first := strings.SplitN(read(t, filepath.Join(dirs[0], "rouge.jsonl")), "\n", 2)[0]
	perfect := `{"precision":1,"recall":1,"fmeasure":1}`
	if want := fmt.Sprintf(`{"id":"a<b","rouge1":%s,"rouge2":%s,"rougeL":%s,"rougeLsum":%s}`, perfect, perfect, perfect,
		perfect); first != want {
		t.Errorf("got  %s\nwant %s", first, want)
	}
	if r := mustRun(t, "report", dirs[0], dirs[1]); !strings.Contains(r.Stdout, "RougeL and rougeLsum on rouge") ||
		!strings.Contains(r.Stdout, "This was look 2 at these questions") {
		t.Errorf("two evaluations do not compare:\n%s", r.Stdout)
	}
	other := strings.ReplaceAll(read(t, filepath.Join(work, "1")), `"z"`, `"q"`)
	write(t, filepath.Join(work, "2"), other)
	for _, of := range []struct {
		predictions string
		look        int
	}{{"2", 3}, {"1", 2}} { // a folder that is used again, with other scores and with those of an earlier look
		mustRun(t, "task=evaluate", "evaluate.metric=rouge", "evaluate.predictions="+filepath.Join(work, of.predictions),
			"evaluate.references="+references, "hydra.run.dir="+dirs[1], "evidence.ledger="+filepath.Join(work, "looks.jsonl"))
		want := fmt.Sprintf("This was look %d at these questions", of.look)
		if report := read(t, filepath.Join(dirs[1], "report.md")); !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}

func TestEvaluateRougeInputs(t *testing.T) {
	t.Parallel()
	const good = `{"id": 1, "text": "a"}` + "\n" + `{"id": 2, "text": "b"}` + "\n"
	for _, tc := range []struct {
		name, predictions, references string
		more                          []string
		code                          int
		want                          string
	}{
		{"an id twice", good + "\n" + `{"id": 1, "text": "c"}`, good, nil, 1, "p.jsonl:4: the id 1 is that of line 1 already"},
		{"a reference twice", good, good + good, nil, 1, "r.jsonl:3: the id 1 is that of line 1 already"},
		{"a missing prediction", `{"id": 2, "text": "b"}`, good, nil, 1,
			"p.jsonl: 1 of 2 references have no prediction: 1 (evaluate.missing=skip leaves them out, zero scores them 0)"},
		{"an unknown prediction", good + `{"id": "3", "text": "b"}`, good, nil, 1, `p.jsonl:3: the id "3" is not in`},
		{"a text for a number", good + `{"id": "2", "text": "b"}`, good, nil, 1, `r.jsonl: there it is the number 2`},
		{"a number for a text", good + `{"id": 3, "text": "b"}`, good + `{"id": "3", "text": "b"}`, nil, 1,
			`r.jsonl: there it is the text "3"`},
		{"a true id", `{"id": true, "text": "b"}`, good, nil, 1, `p.jsonl:1: want an "id", a text or a number`},
		{"a list", `[` + good + `]`, good, nil, 1, `p.jsonl:1: want one JSON object`},
		{"another encoding", good + "{\"id\": 3, \"text\": \"caf\xe9\"}", good, nil, 1, "p.jsonl:3: not UTF-8"},
		{"a byte order mark and Windows line ends", "\ufeff" + strings.ReplaceAll(good, "\n", "\r\n\r\n"), good, nil, 0, ""},
		{"a folder as input", good, good, []string{"evaluate.references=DIR"}, 1, "want a regular file, it is a folder"},
		{"a folder as output", good, good, []string{"evaluate.out=DIR"}, 2, "this is a folder: want the name of a file"},
		{"no text", good + `{"id": 3}`, good, nil, 1, `p.jsonl:3: id 3: want a "text"`},
		{"a text that is none", `{"id": 3, "text": 4}`, good, nil, 1,
			"p.jsonl:1: want one JSON object a line: text: got a JSON number, want a text"},
		{"no id", `{"text": "x"}`, good, nil, 1, `p.jsonl:1: want an "id", a text or a number`},
		{"damage", good + `{"id": `, good, nil, 1, "p.jsonl:3: want one JSON object a line: byte 6: unexpected end"},
		{"an empty file", "\n", good, nil, 1, "p.jsonl holds no text"},
		{"no file", good, good, []string{"evaluate.references=nowhere"}, 2,
			"nowhere: no such file: set evaluate.references to an existing one"},
		{"nothing to score", good, good, []string{"evaluate.predictions=null"}, 2, "evaluate.predictions"},
		{"a file of the other metric", good, good, []string{"evaluate.results=x.json"}, 2,
			"evaluate.results=x.json: evaluate.metric=rouge does not read it"},
		{"an input as output", good, good, []string{"evaluate.out=IN"}, 2, "this is evaluate.predictions, which would be overwritten"},
		{"the missing left out", `{"id": 2, "text": "b"}`, good, []string{"evaluate.missing=skip"}, 0,
			"1 of 2 references have no prediction: they are left out"},
		{"no word that counts", good, strings.ReplaceAll(good, `"b"`, `"日本語"`), nil, 0, "1 of 2 references have no word of ASCII letters"},
		{"no word that counts among those that are scored", good, strings.ReplaceAll(good, `"b"`, `"日本語"`) + `{"id": 3, "text": "日本語"}`,
			[]string{"evaluate.missing=skip"}, 0, "1 of 2 references have no word of ASCII letters"},
		{"the missing count as empty", `{"id": 2, "text": "b"}`, good, []string{"evaluate.missing=zero"}, 0, "they score 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			work := t.TempDir()
			p, r := filepath.Join(work, "p.jsonl"), filepath.Join(work, "r.jsonl")
			write(t, p, tc.predictions)
			write(t, r, tc.references)
			for i := range tc.more {
				tc.more[i] = strings.NewReplacer("IN", p, "DIR", work).Replace(tc.more[i])
			}
			got := run(t, append([]string{"task=evaluate", "evaluate.metric=rouge", "evaluate.predictions=" + p,
				"evaluate.references=" + r, "hydra.run.dir=" + folder(t)}, tc.more...)...)
			if got.Code != tc.code || !strings.Contains(got.Stderr, tc.want) {
				t.Errorf("code %d, %s\nwant %d, %s", got.Code, got.Stderr, tc.code, tc.want)
			}
		})
	}
}
