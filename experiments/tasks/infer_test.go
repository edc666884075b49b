//go:build !core

package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata/icl"
	search "fulcrum/experiments/icl"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/internal/tensorfile"
	"fulcrum/rewardutil/vqa"
)

// copier answers with the last example's answer. It finds an answer likely where an example has it.
type copier struct{ lvlm.Scorer }

func (copier) Answer(_ context.Context, prompts []lvlm.Prompt) ([]lvlm.Reply, error) {
	out := make([]lvlm.Reply, len(prompts))
	for i, p := range prompts {
		if p.Query.Answer != "" {
			return nil, fmt.Errorf("query %d is asked with its answer %q", p.Query.ID, p.Query.Answer)
		}
		n := len(p.Shots)
		if out[i].Tokens = 10 + n; n > 0 {
			out[i].Text = p.Shots[n-1].Answer
		}
	}
	return out, nil
}

func (copier) Score(_ context.Context, prompts []lvlm.Prompt) ([]lvlm.Likelihood, error) {
	out := make([]lvlm.Likelihood, len(prompts))
	for i, p := range prompts {
		out[i].LogProbs = []float64{-3, -1}
		if slices.ContainsFunc(p.Shots, func(e lvlm.Example) bool { return e.Answer == p.Query.Answer }) {
			out[i].LogProbs[0] = -0.1
		}
	}
	return out, nil
}

// questions are 8 training records, answered red and blue by turns, and 2 held-out ones that are red.
func questions(t *testing.T, dir string) *icl.Set {
	t.Helper()
	var lines []string
	for i := range 10 {
		answer, split := []string{"red", "blue"}[i%2], "train"
		if i >= 8 {
			answer, split = "red", "val"
		}
		lines = append(lines, fmt.Sprintf(`{"id": %d, "question": "q%d", "answers": ["x", "%s", "%s"], "split": "%s"}`, 100+i, i, answer,
			answer, split))
	}
	path := filepath.Join(dir, "records.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	set, err := icl.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestInferShowsWhatTheMethodChooses(t *testing.T) {
	dir := t.TempDir()
	set := questions(t, dir)
	file := func(name, text string) *string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return &path
	}
	pools := file("pools.json", `{"_meta": {}, "8": {"candidate_pool_ids": [1, 3, 4, 5], "pointer_candidates": [{"pointer": [5, 4]}]},
		"9": {"candidate_pool_ids": [1, 3, 5, 6], "pointer_candidates": [{"pointer": [6, 1]}]}}`)
	predictions := file("predictions.jsonl", "{\"query_id\": 8, \"pointer\": [2, 7]}\n{\"query_id\": 9, \"pointer\": [7, 2]}\n")
	vectors := icl.Vectors{Dim: 2, Data: []float32{1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0.8, 0.6, 0.6, 0.8}}
	for _, c := range []struct {
		name    string
		options InferOptions
		want    [][]int32 // nil: any two of the pool
		scored  int64
		answers []string
	}{
		{"predictions", InferOptions{Method: "predictions", Predictions: predictions}, [][]int32{{2, 7}, {7, 2}}, 0, []string{"blue", "red"}},
		{"the nearest stands last", InferOptions{Method: "image"}, [][]int32{{2, 0}, {3, 1}}, 0, []string{"red", "blue"}},
		{"the nearest of a pool", InferOptions{Method: "image", Beams: pools}, [][]int32{{1, 4}, {3, 1}}, 0, []string{"red", "blue"}},
		{"the first candidate", InferOptions{Method: "best_beam", Beams: pools}, [][]int32{{5, 4}, {6, 1}}, 0, []string{"red", "blue"}},
		{"the oracle", InferOptions{Method: "oracle", Beams: pools}, [][]int32{{1, 4}, {1, 6}}, 8, []string{"red", "red"}},
		{"random", InferOptions{Method: "random", Beams: pools}, nil, 0, nil},
		{"none", InferOptions{Method: "none"}, [][]int32{nil, nil}, 0, []string{"", ""}},
		{"the next is unlike the first", InferOptions{Method: "mmr", Beams: pools}, [][]int32{{1, 4}, {6, 1}}, 0, []string{"red", "blue"}},
		{"the first answer", InferOptions{Method: "image", Answer: "first"}, [][]int32{{2, 0}, {3, 1}}, 0, []string{"x", "x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			told := 0
			if c.options.Shots = 2; c.options.Answer == "" {
				c.options.Answer = "majority"
			}
			ch := &chooser{InferOptions: c.options, set: set, scorer: copier{}, seed: 1, vectors: vectors, chunk: 1,
				tell: func(string, bool) { told++ }}
			if c.options.Method == "image" || c.options.Method == "mmr" {
				ch.queries = set.Queries(true)
				if c.options.Beams != nil {
					if err := ch.readBeams(*pools); err != nil {
						t.Fatal(err)
					}
				}
			} else if err := ch.read(); err != nil {
				t.Fatal(err)
			}
			chosen, err := ch.choose(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			answers, err := ch.answer(t.Context(), chosen)
			if err != nil {
				t.Fatal(err)
			}
			if want := int64(20 + len(chosen[0]) + len(chosen[1])); ch.tokens != want || told != 4 {
				t.Errorf("%d tokens, want %d; told %d times how far it is, want 4", ch.tokens, want, told)
			}
			if c.want == nil {
				for i, rows := range chosen {
					if len(rows) != 2 || rows[0] == rows[1] || !slices.Contains(ch.pools[i], rows[0]) || !slices.Contains(ch.pools[i], rows[1]) {
						t.Errorf("chosen %v, want two of the pool %v", rows, ch.pools[i])
					}
				}
			} else if fmt.Sprint(chosen) != fmt.Sprint(c.want) || !slices.Equal(answers, c.answers) || ch.scored != c.scored {
				t.Errorf("chosen %v, answers %q, %d scored, want %v, %q and %d", chosen, answers, ch.scored, c.want, c.answers, c.scored)
			}
			out := filepath.Join(dir, "results.json")
			if err := ch.write(dir, out, chosen, answers, Inference{}); err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(out)
			var results []vqa.Result
			if err := json.Unmarshal(text, &results); err != nil || len(results) != 2 || results[0].QuestionID != 108 {
				t.Errorf("%s: %s, %v: want the records' ids as question ids", out, text, err)
			}
		})
	}
}

// Shuffled, each example shows the answer of another one, with other words where there are any; who chooses does not see it. An answer
// that an example shows is counted as copied.
func TestInferShowsShuffledAnswers(t *testing.T) {
	set := questions(t, t.TempDir())
	shown := func(answer string, seed int64) ([]string, int64) {
		c := &chooser{InferOptions: InferOptions{Method: "oracle", Shots: 1, Answer: answer}, set: set, scorer: copier{}, seed: seed, chunk: 9,
			tell: func(string, bool) {}, queries: []int{8, 9}, pools: [][]int32{{1, 4}, {6, 1}}}
		chosen, err := c.choose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(chosen) != "[[4] [6]]" {
			t.Errorf("%s answers: %v are chosen, want the red ones", answer, chosen)
		}
		said, err := c.answer(t.Context(), chosen)
		if err != nil {
			t.Fatal(err)
		}
		return said, c.copied
	}
	for seed := range int64(9) {
		if said, copied := shown("shuffled", seed); !slices.Equal(said, []string{"blue", "blue"}) || copied != 2 {
			t.Errorf("seed %d: %q, %d copied, want blue from red examples", seed, said, copied)
		}
	}
	if said, copied := shown("majority", 0); !slices.Equal(said, []string{"red", "red"}) || copied != 2 {
		t.Errorf("%q, %d copied", said, copied)
	}
	none := &chooser{set: set, scorer: copier{}, chunk: 9, tell: func(string, bool) {}, queries: []int{8}}
	if _, err := none.answer(t.Context(), [][]int32{nil}); err != nil || none.copied != 0 {
		t.Errorf("%d copied of no example, %v", none.copied, err)
	}
}

// Pictures that are not there are named before the model is asked anything.
func TestInferNamesMissingPictures(t *testing.T) {
	for at, options := range map[int]InferOptions{4: {Method: "oracle", Shots: 1}, 9: {Method: "oracle", Shots: 1}} {
		set := questions(t, t.TempDir())
		var records []icl.Record
		for row, r := range set.Records.All() {
			if row == at {
				r.Image = "nowhere.png"
			}
			records = append(records, r)
		}
		set.Records = icl.TableOf(records...)
		ch := &chooser{InferOptions: options, set: set, queries: []int{8, 9}, pools: [][]int32{{1, 2}, {3, 4}}} // no scorer: it must not be asked
		if _, err := ch.choose(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(id %d): open nowhere.png", 100+at)) {
			t.Errorf("record %d: %v", at, err)
		}
	}
}

func TestInferRefusesWhatCannotBeShown(t *testing.T) {
	dir := t.TempDir()
	set := questions(t, dir)
	for line, want := range map[string]string{
		`{"query_id": 8, "pointer": [1]}`:                                                "queries have 1 examples at most, infer.shots=2 wants as many",
		`{"query_id": 8, "pointer": [1, 9]}`:                                             "query 8: example 9 is held out or has no answer: it cannot be shown",
		`{"query_id": 8, "pointer": [1, 10]}`:                                            "query 8: example 10 is none of the 10 records",
		`{"query_id": 8, "pointer": [1, 1]}`:                                             "query 8: example 1 stands twice",
		`{"pointer": [1, 2]}`:                                                            "query -1 is none of the 10 records: its number is a row of them",
		`{"query_id": 10, "pointer": [1, 2]}`:                                            "query 10 is none of the 10 records: its number is a row of them",
		`{"query_id": 3, "pointer": [1, 2]}`:                                             "no question to ask",
		"{\"query_id\": 8, \"pointer\": [1, 2]}\n{\"query_id\": 8, \"pointer\": [2, 1]}": "predictions.jsonl:2: query 8 stands twice",
	} {
		path := filepath.Join(dir, "predictions.jsonl")
		if err := os.WriteFile(path, []byte(line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		ch := &chooser{InferOptions: InferOptions{Method: "predictions", Predictions: &path, Shots: 2}, set: set, scorer: copier{}}
		if err := ch.read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// A policy that may stop chooses fewer examples for some questions. What the files hold beside the questions that are asked is counted, and
// the oracle leaves out those whose answer nobody knows.
func TestInferSaysWhatItLeavesOut(t *testing.T) {
	dir := t.TempDir()
	set := questions(t, dir)
	var all []icl.Record
	for _, r := range set.Records.All() {
		all = append(all, r)
	}
	set.Records = icl.TableOf(append(all, icl.Record{ID: 110, Question: "q10", HeldOut: true})...)
	for _, c := range []struct {
		method, text string
		want         [][]int32
		notes        []string
	}{
		{"predictions", "{\"query_id\": 8, \"pointer\": [1]}\n{\"query_id\": 3, \"pointer\": [1, 2]}\n{\"query_id\": 9, \"pointer\": [2, 1]}",
			[][]int32{{1}, {2, 1}}, []string{"1 of 3 entries are about no question"}},
		{"oracle", `{"_meta": {"records": "x"}, "8": {"candidate_pool_ids": [1, 2]}, "008": {}, "9x": {}, "10": {"candidate_pool_ids": [1, 2]}}`,
			[][]int32{{1, 2}}, []string{"was made from other records", "3 of 4 entries are about no question"}},
	} {
		path := filepath.Join(dir, c.method)
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		ch := &chooser{InferOptions: InferOptions{Method: c.method, Predictions: &path, Shots: 2, Answer: "majority"}, set: set,
			scorer: copier{}, tell: func(string, bool) {}}
		if c.method == "oracle" {
			ch.Beams = &path
		}
		if err := ch.read(); err != nil {
			t.Fatal(err)
		}
		got, err := ch.choose(t.Context())
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: chosen %v (%v), want %v", c.method, got, err, c.want)
		}
		if len(ch.notes) != len(c.notes) {
			t.Fatalf("%s: notes %q, want %q", c.method, ch.notes, c.notes)
		}
		for i, note := range ch.notes {
			if !strings.Contains(note, c.notes[i]) {
				t.Errorf("%s: note %q, want %q", c.method, note, c.notes[i])
			}
		}
	}
}

func TestInferRefusesPoolsAndTablesOfOtherRecords(t *testing.T) {
	dir := t.TempDir()
	set := questions(t, dir)
	pools, table := filepath.Join(dir, "pools.json"), filepath.Join(dir, "table.npy")
	if err := tensorfile.WriteNPY(table, tensorfile.FromFloat32s("", []int{4, 2}, []float32{1, 0, 1, 0, 1, 0, 1, 0})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options    InferOptions
		pool, want string
	}{
		{InferOptions{Method: "random", Shots: 2, Beams: &pools}, "[1, 10]", "pools.json: query 8: example 10 is none of the 10 records"},
		{InferOptions{Method: "oracle", Shots: 2, Beams: &pools}, "[-1, 2]", "pools.json: query 8: example -1 is none of the 10 records"},
		{InferOptions{Method: "image", Shots: 2, Beams: &pools}, "[1, 9]", "pools.json: query 8: example 9 is held out or has no answer"},
		{InferOptions{Method: "random", Shots: 9}, "", "infer.shots=9: 8 records may be examples"},
		{InferOptions{Method: "text", Shots: 2}, "", "table.npy: the embeddings have 4 rows, the records are 10"},
	} {
		if err := os.WriteFile(pools, []byte(`{"8": {"candidate_pool_ids": `+c.pool+`}}`), 0o644); err != nil {
			t.Fatal(err)
		}
		ch := &chooser{InferOptions: c.options, set: set, scorer: copier{}, table: &table}
		if err := ch.read(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, pool %s: %v, want %q", c.options.Method, c.pool, err, c.want)
		}
	}
}

// The answers about images with captions are a result file of COCO's kind, a caption a line of the answer at most, and the loop scores it.
func TestInferWritesCaptions(t *testing.T) {
	dir := t.TempDir()
	set := questions(t, dir)
	set.Captions = true
	c := &chooser{set: set, queries: []int{8, 9}}
	out := filepath.Join(dir, "out.json")
	if err := c.write(dir, out, make([][]int32, 2), []string{" a red dog, asleep.\nQuestion: no", "red"}, Inference{}); err != nil {
		t.Fatal(err)
	}
	results, err := readCaptionResults(out)
	if want := []captionResult{{108, "a red dog, asleep."}, {109, "red"}}; err != nil || !slices.Equal(results, want) {
		t.Errorf("%v, %v, want %v", results, err, want)
	}
	l := &loop{set: set, held: []icl.Record{{ID: 108, Answers: []string{"a red dog, asleep."}}}}
	scores, err := l.grade(out)
	if err != nil || len(scores) != 1 {
		t.Fatalf("%v, %v: want the score of the one image with captions", scores, err)
	}
	set.Captions = false
	if err := c.write(dir, out, make([][]int32, 2), []string{"red, or so", "blue"}, Inference{}); err != nil {
		t.Fatal(err)
	}
	l.held = []icl.Record{{ID: 109, Answers: []string{"blue", "blue", "blue", "red"}}}
	if scores, err := l.grade(out); err != nil || len(scores) != 1 || scores[109] != vqa.Accuracy("blue", l.held[0].Answers, false) {
		t.Errorf("%v, %v: want the accuracy of the one question with answers", scores, err)
	}
}

// A pool that is too small is shown whole.
func TestDiverseInASmallPool(t *testing.T) {
	ch := &chooser{InferOptions: InferOptions{Shots: 3}, vectors: icl.Vectors{Dim: 2, Data: []float32{1, 0, 0, 1, 1, 0}}}
	if got := ch.diverse(0, []int{0, 1, 2}); !slices.Equal(got, []int32{1, 2}) {
		t.Errorf("chosen %v, want the two others, the nearest last", got)
	}
}

// Files whose scores have noise say so.
func TestMetaTellsOfNoise(t *testing.T) {
	b := &beamSearch{opt: search.BeamsOptions{Noise: 1.5}, job: &job.Job{Config: &job.Config{}}, set: &icl.Set{}}
	if got := b.meta()["noise"]; got != 1.5 {
		t.Errorf("noise %v, want 1.5", got)
	}
}
