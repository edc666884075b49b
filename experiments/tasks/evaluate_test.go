package tasks_test

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/testkit/runtest"
)

type vqaAccuracies struct {
	Questions       int                `json:"questions,omitempty"`
	Missing         int                `json:"missing_results,omitempty"`
	Overall         float64            `json:"overall"`
	PerQuestionType map[string]float64 `json:"perQuestionType"`
	PerAnswerType   map[string]float64 `json:"perAnswerType"`
	PerQuestion     map[string]float64 `json:"perQuestion"`
}

// task=evaluate gives the reference's recorded accuracies in compat mode, and the same numbers in
// summary.json, report.md and on the console.
func TestEvaluateCompatGolden(t *testing.T) {
	t.Parallel()
	var golden struct{ Dataset vqaAccuracies }
	readJSON(t, "../../rewardutil/testdata/vqa_metric.json", &golden)
	dir := folder(t)
	r := mustRun(t, vqaFiles("compat=lever_plus", "hydra.run.dir="+dir)...)
	var got vqaAccuracies
	readJSON(t, filepath.Join(dir, "evaluate.json"), &got)
	if got.Questions != 36 || got.Missing != 4 {
		t.Errorf("%d questions, %d missing, want 36 and 4", got.Questions, got.Missing)
	}
	got.Questions, got.Missing = 0, 0
	if !reflect.DeepEqual(got, golden.Dataset) {
		t.Errorf("got  %+v\nwant %+v", got, golden.Dataset)
	}
	var summary struct {
		State      string
		Evaluation vqaAccuracies
	}
	readJSON(t, filepath.Join(dir, "summary.json"), &summary)
	if summary.State != "done" || summary.Evaluation.Overall != golden.Dataset.Overall {
		t.Errorf("summary.json: %+v", summary)
	}
	for where, text := range map[string]string{"stdout": r.Stdout, "report.md": read(t, filepath.Join(dir, "report.md"))} {
		for _, want := range []string{"overall", "72.07", "answer type yes/no", "63.64", "question type how", "74.30"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", where, want, text)
			}
		}
	}
	if !strings.Contains(r.Stderr, "4 of 40 annotated questions have no result") {
		t.Errorf("no warning about the missing questions: %s", r.Stderr)
	}

	before := read(t, filepath.Join(dir, "report.md"))
	write(t, filepath.Join(dir, "report.md"), "")
	mustRun(t, "report", dir)
	if got := read(t, filepath.Join(dir, "report.md")); got != before {
		t.Errorf("the report made again differs:\n%s", got)
	}

	// what it wrote in the official format scores the same
	again := folder(t)
	mustRun(t, "task=evaluate", "compat=lever_plus", "evaluate.results="+filepath.Join(dir, "results.json"),
		"evaluate.annotations=../../rewardutil/testdata/vqa_annotations.json", "evaluate.out="+filepath.Join(again,
			"scores/acc.json"), "hydra.run.dir="+again)
	var second vqaAccuracies
	readJSON(t, filepath.Join(again, "scores/acc.json"), &second)
	if second.Overall != golden.Dataset.Overall {
		t.Errorf("results.json scores %v, want %v", second.Overall, golden.Dataset.Overall)
	}
}

// By default ground truths without ids do not cancel each other, and other sections are not checked:
// an experiment whose data has no files composes.
func TestEvaluateStandard(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, vqaFiles("data=beams", "hydra.run.dir="+dir)...)
	var got vqaAccuracies
	readJSON(t, filepath.Join(dir, "evaluate.json"), &got)
	if got.Overall <= 72.07 { // the reference loses what cancels
		t.Errorf("overall %v, want more than the reference's 72.07", got.Overall)
	}
	zero := folder(t)
	mustRun(t, vqaFiles("evaluate.missing=zero", "hydra.run.dir="+zero)...)
	var all vqaAccuracies
	readJSON(t, filepath.Join(zero, "evaluate.json"), &all)
	if want := got.Overall * 36 / 40; all.Questions != 40 || math.Abs(all.Overall-want) > 0.01 || all.PerQuestion["1003"] != 0 {
		t.Errorf("with zeros: %d questions, %v, want 40 and %.2f", all.Questions, all.Overall, want)
	}
	comparison := mustRun(t, "report", dir, dir)
	if !strings.Contains(comparison.Stdout, "Accuracy on vqa") {
		t.Errorf("two evaluations do not compare:\n%s", comparison.Stdout)
	}
}

// A sweep over result files ranks them.
func TestEvaluateSweep(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	for name, answer := range map[string]string{"good": "cat", "bad": "dog"} {
		write(t, filepath.Join(work, name+".json"), `[{"question_id": 1, "answer": "`+answer+`"}]`)
	}
	write(t, filepath.Join(work, "truth.json"), `{"annotations": [{"question_id": 1, "answers": [`+strings.Repeat(`{"answer": "cat"},`, 9)+
		`{"answer": "cow"}]}]}`)
	sweep := folder(t)
	mustRun(t, "-m", "task=evaluate", "evaluate.results="+work+"/good.json,"+work+"/bad.json",
		"evaluate.annotations="+work+"/truth.json", "hydra.sweep.dir="+sweep)
	runtest.NeedsAnnexes(t)
	report := read(t, filepath.Join(sweep, "report.md"))
	if !strings.Contains(report, "Best: job 0, accuracy 1.000") || !strings.Contains(report, "Judged by accuracy") {
		t.Errorf("report:\n%s", report)
	}
}

func TestEvaluateInputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	annotations := filepath.Join(dir, "annotations.json")
	answers := strings.Repeat(`{"answer": "2 dogs"},`, 9) + `{"answer": "cat"}`
	write(t, annotations, `{"annotations": [{"question_id": 1, "question_type": "how", "answer_type": "number", "answers": [`+answers+`]},
		{"question_id": 2, "answers": [`+answers+`]}]}`)
	latin, gzipped, twice := filepath.Join(dir, "latin.json"), filepath.Join(dir, "truths.gz"), filepath.Join(dir, "twice.json")
	one := `{"annotations": [{"question_id": 1, "answers": [{"answer": "x"}]}]}`
	write(t, latin, strings.Replace(one, "x", "caf\xe8", 1))
	write(t, gzipped, "\x1f\x8b\x08\x00")
	write(t, twice, one+one)
	evaluate := func(t *testing.T, results string, more ...string) (result, string) {
		path := filepath.Join(t.TempDir(), "results.json")
		write(t, path, results)
		out := folder(t)
		return run(t, append([]string{"task=evaluate", "evaluate.results=" + path, "evaluate.annotations=" + annotations,
			"hydra.run.dir=" + out}, more...)...), out
	}
	for _, tc := range []struct{ name, results string }{
		{"official", `[{"question_id": 1, "answer": "two dogs"}, {"question_id": 2, "answer": "a cat"}]`},
		{"ids as text", `[{"question_id": "1", "answer": "two dogs"}, {"question_id": "2", "answer": "a cat"}]`},
		{"a byte order mark", "\ufeff" + `[{"question_id": 1, "answer": "two dogs"}, {"question_id": 2, "answer": "a cat"}]`},
		{"one a line and raw generations", "{\"id\": 1, \"completion\": \"Two dogs, I think\"}\n\n{\"id\": 2, \"completion\": \"the cat " +
			"Question: why\"}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, out := evaluate(t, tc.results)
			if r.Code != 0 {
				t.Fatal(r.Stderr)
			}
			var got vqaAccuracies
			readJSON(t, filepath.Join(out, "evaluate.json"), &got)
			if want := map[string]float64{"1": 100, "2": 30}; !reflect.DeepEqual(got.PerQuestion, want) {
				t.Errorf("got %v, want %v", got.PerQuestion, want)
			}
		})
	}
	for _, tc := range []struct {
		name, results string
		more          []string
		code          int
		want          string
	}{
		{"an input as output", `[{"question_id": 1, "answer": "a"}, {"question_id": 2, "answer": "b"}]`,
			[]string{"evaluate.out=" + annotations}, 2, "this is evaluate.annotations, which would be overwritten"},
		{"a place that cannot be written is told first", `[`, []string{"evaluate.out=/proc/x.json"}, 2,
			"evaluate.out=/proc/x.json: "},
		{"a folder as output is told first", `[`, []string{"evaluate.out=/"}, 2, "this is a folder: want the name of a file"},
		{"a question twice", `[{"question_id": 1, "answer": "a"}, {"question_id": 1, "answer": "b"}]`, nil, 1,
			"entry 2: question 1 has a result already, in entry 1"},
		{"an unknown question", `[{"question_id": 3, "answer": "a"}]`, nil, 1, "question 3: no such question"},
		{"a missing question", `[{"question_id": 2, "answer": "a"}]`, []string{"evaluate.missing=error"}, 1,
			"1 of 2 annotated questions have no result: 1"},
		{"no answer", `[{"question_id": 1}]`, nil, 1, "entry 1: question 1: no answer"},
		{"an answer that is no text", `[{"question_id": 1, "answer": 2}]`, nil, 1, "answer is 2, want text"},
		{"no question id", `[{"answer": "a"}]`, nil, 1, "entry 1: no question_id"},
		{"a question id that is none", `[{"question_id": 1.5, "answer": "a"}]`, nil, 1, "question_id is 1.5, want an integer"},
		{"not JSON", `[{"question_id"`, nil, 1, "not an official result file"},
		{"a damaged line", "{\"id\": 1, \"answer\": \"x\"}\n{oops\n", nil, 1, "line 2"},
		{"empty", ``, nil, 1, "no results"},
		{"another set's questions", `[{"question_id": 1, "answer": "a"}]`,
			[]string{"evaluate.questions=../../rewardutil/testdata/vqa_questions.json"}, 1, "question 1, which has a result, is not among its 40 " +
				"questions"},
		{"no such file", `[]`, []string{"evaluate.annotations=nowhere.json"}, 2, "nowhere.json: no such file: set evaluate.annotations"},
		{"an unknown metric", `[]`, []string{"evaluate.metric=vqq"}, 2, "did you mean vqa?"},
		{"letters that would be lost", "[{\"question_id\": 1, \"answer\": \"caf\xe9\"}]", nil, 1, "results.json: not UTF-8"},
		{"truths whose letters would be lost", `[]`, []string{"evaluate.annotations=" + latin}, 1, "latin.json: not UTF-8"},
		{"a compressed file", `[]`, []string{"evaluate.annotations=" + gzipped}, 1, "truths.gz: the file is compressed: unpack it"},
		{"two files in one", `[]`, []string{"evaluate.annotations=" + twice}, 1, "twice.json: read VQA annotations: byte "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := evaluate(t, tc.results, tc.more...)
			refused(t, r, tc.code, tc.want)
		})
	}
	t.Run("a file that is not there is told before a folder is made", func(t *testing.T) {
		made := filepath.Join(t.TempDir(), "new")
		r, _ := evaluate(t, `[]`, "evaluate.annotations=nowhere.json", "evaluate.out="+filepath.Join(made, "x.json"))
		refused(t, r, 2, "nowhere.json: no such file")
		if _, err := os.Stat(made); err == nil {
			t.Error("the folder of evaluate.out is left behind")
		}
	})
	t.Run("both files are asked for at once", func(t *testing.T) {
		r := run(t, "task=evaluate", "hydra.run.dir="+folder(t))
		if r.Code != 2 || !strings.Contains(r.Stderr, "evaluate.results=FILE") || !strings.Contains(r.Stderr, "evaluate.annotations=FILE") {
			t.Errorf("exit code %d: %s", r.Code, r.Stderr)
		}
	})
	t.Run("it does not load libtorch", func(t *testing.T) {
		logs := filepath.Join(t.TempDir(), "ld")
		p := startWith(t, "", []string{"LD_DEBUG=files", "LD_DEBUG_OUTPUT=" + logs}, vqaFiles("hydra.run.dir="+folder(t))...)
		if r := p.Wait(); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		files, _ := filepath.Glob(logs + ".*")
		if len(files) == 0 {
			t.Skip("the dynamic linker wrote no log")
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "libtorch_cpu") {
				t.Error("libtorch was loaded")
			}
		}
	})
}

// TestEvaluateInADryRun: it reads the files, and makes, scores and tells nothing.
func TestEvaluateInADryRun(t *testing.T) {
	work := t.TempDir()
	texts := filepath.Join(work, "texts.jsonl")
	write(t, texts, `{"id": 1, "text": "a red cat"}`)
	captions, said := filepath.Join(work, "captions.json"), filepath.Join(work, "said.json")
	write(t, captions, `{"annotations": [{"image_id": 1, "caption": "a cat"}, {"image_id": 2, "caption": "a dog"}]}`)
	write(t, said, `[{"image_id": 1, "caption": "a cat"}, {"image_id": 2, "caption": "a dog"}]`)
	for metric, args := range map[string][]string{
		"vqa":   vqaFiles(),
		"cider": {"task=evaluate", "evaluate.metric=cider", "evaluate.annotations=" + captions, "evaluate.results=" + said},
		"rouge": {"task=evaluate", "evaluate.metric=rouge", "evaluate.predictions=" + texts, "evaluate.references=" + texts},
	} {
		out := filepath.Join(work, metric, "out")
		r := mustRun(t, append(args, "evaluate.out="+out, "dry_run=true", "hydra.run.dir="+folder(t))...)
		if _, err := os.Stat(filepath.Dir(out)); err == nil || strings.Count(r.Stdout, "\n") != 1 {
			t.Errorf("%s: folder made: %t; %s", metric, err == nil, r.Stdout)
		}
	}
}
