package tasks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

// textReference is what the public implementation made of the tiny T5 and BART models.
type textReference map[string]struct {
	Forward struct {
		Sources []string  `json:"source_texts"`
		Sums    []float64 `json:"sequence_logps"`
	}
	Generation map[string]json.RawMessage
}

func openTexts(t *testing.T) (r textReference, root string) {
	t.Helper()
	path := golden.Shared(t, "seq2seq", "expected.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	r = textReference{}
	for _, model := range tinyTexts() {
		entry := r[model]
		if err := json.Unmarshal(all[model], &entry); err != nil {
			t.Fatal(err)
		}
		r[model] = entry
	}
	return r, filepath.Dir(path)
}

func tinyTexts() []string { return []string{"tiny_t5", "tiny_t5_v11", "tiny_bart"} }

func textModel(root, name string, more ...string) []string {
	return append([]string{"policy=seq2seq", "threads=1", "seq2seq.path=" + filepath.Join(root, name), "seq2seq.dtype=float32"}, more...)
}

// task=generate gives the public implementation's greedy tokens from source texts and from their ids: with the end token
// and, for BART, the forced first and last tokens of the model's folder.
func TestGenerateFromTexts(t *testing.T) {
	t.Parallel()
	r, root := openTexts(t)
	for _, model := range tinyTexts() {
		kind, end := "greedy_real_eos", int64(1)
		if model == "tiny_bart" {
			kind, end = "forced_bos_eos", 2
		}
		checkGreedy(t, r, root, model, kind, end)
		checkGreedy(t, r, root, model, "greedy_ignore_eos", -1, "generate.ignore_eos=true") // nothing ends or is forced
	}
}

// checkGreedy compares the answers to the reference's source texts with its ids, which end at the first end.
func checkGreedy(t *testing.T, r textReference, root, model, kind string, end int64, more ...string) {
	t.Helper()
	var want struct{ IDs [][]int64 }
	if err := json.Unmarshal(r[model].Generation[kind], &want); err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for i, text := range r[model].Forward.Sources {
		lines = append(lines, map[string]any{"id": i, "source": text})
	}
	in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
	writeLines(t, in, root, lines...)
	mustRun(t, textModel(root, model, append(more, "task=generate", "generate.in="+in, "generate.out="+out,
		fmt.Sprint("generate.max_new_tokens=", len(want.IDs[0])-1),
		"generate.do_sample=false", "generate.batch_size=2", "hydra.run.dir="+folder(t))...)...)
	got := readAnswers(t, out)
	if len(got) != len(want.IDs) {
		t.Fatalf("%s %s: %d answers, want %d", model, kind, len(got), len(want.IDs))
	}
	for i, a := range got {
		expect := want.IDs[i][1:] // after the start token
		if at := slices.Index(expect, end); at >= 0 {
			expect = expect[:at+1]
		}
		if !slices.Equal(a.CompletionIDs, expect) {
			t.Errorf("%s %s row %d: %v, want %v", model, kind, i, a.CompletionIDs, expect)
		}
	}
}

// task=score gives the public implementation's log-probabilities, of source texts and of their ids alike.
func TestScoreTexts(t *testing.T) {
	t.Parallel()
	r, root := openTexts(t)
	for _, model := range tinyTexts() {
		f, err := tensorfile.ReadSafetensors(filepath.Join(root, "fixtures", model+".forward.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		x, _ := f.Get("labels")
		labels, err := x.Int64s()
		if err != nil {
			t.Fatal(err)
		}
		width := x.Shape[1]
		var lines []map[string]any
		for i, text := range r[model].Forward.Sources {
			var ids []int64
			for _, id := range labels[i*width : (i+1)*width] {
				if id >= 0 {
					ids = append(ids, id)
				}
			}
			lines = append(lines, map[string]any{"id": i, "source": text, "completion_ids": ids})
		}
		f.Close()
		in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
		writeLines(t, in, root, lines...)
		mustRun(t, textModel(root, model, "task=score", "score.in="+in, "score.out="+out, "score.batch_size=2",
			"hydra.run.dir="+folder(t))...)
		for i, a := range readAnswers(t, out) {
			golden.Close(t, []float64{a.Sum}, r[model].Forward.Sums[i:i+1], 1e-3)
		}
	}
}

// Bad lines of source texts are named by number, and the others are answered.
func TestBadTextLinesAreNamed(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
	text := "\ufeff" + `{"id": 1, "source": "The bridge is closed.", "completion": "closed"}
{"id": 2, "completion": "x"}
{"id": 3, "source": "a", "source_ids": [5], "completion": "x"}
{"id": 4, "source_ids": [5, 4000], "completion": "x"}
{"id": 5, "source": 7, "completion": "x"}
{"id": 6, "source_ids": [5, 2], "completion_ids": [7]}
{"id": 7, "source_ids": [5, 2], "completion_ids": [` + strings.Repeat("7,", 128) + `7]}
{"id": 8, "source_ids": [5, null, 2], "completion": "x"}
{"id": 9, "source": "caf` + "\xe9" + `", "completion": "x"}
`
	if err := os.WriteFile(in, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := run(t, textModel(root, "tiny_bart", "task=score", "score.in="+in, "score.out="+out, "hydra.run.dir="+folder(t))...)
	if p.Code != 1 {
		t.Errorf("exit code %d, want 1\n%s", p.Code, p.Stderr)
	}
	for _, want := range []string{in + `:2: want "source"`, in + ":3: want source or source_ids, got both",
		in + ":4: token 1 of the source has id 4000", in + ":5: want one JSON object a line: source: got a JSON number, want a text",
		in + ":7: the completion has 129 tokens, but the model only 128 positions",
		in + ":8: want one JSON object a line: entry 1 of a list of token ids is null", in + ":9: not UTF-8",
		"7 bad lines: 2, 3, 4, 5, 7, 8, 9"} {
		if !strings.Contains(p.Stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, p.Stderr)
		}
	}
	got := readAnswers(t, out)
	if len(got) != 2 || got[0].ID != 1.0 || got[1].ID != 6.0 {
		t.Fatalf("answers %+v, want those of lines 1 and 6", got)
	}
	if ids := got[0].CompletionIDs; len(ids) < 2 || ids[0] != 0 {
		t.Errorf("completion %v: want <s> before the text, as BART writes it", ids)
	}
}

// A source that is cut is told once, and a wrong length or path is an error before any line is read.
func TestTextModelLimits(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	in := filepath.Join(t.TempDir(), "in.jsonl")
	writeLines(t, in, root, map[string]any{"id": "long", "source": strings.Repeat("The bridge is closed. ", 200)},
		map[string]any{"id": "longer", "source": strings.Repeat("closed ", 900)})
	generate := func(more ...string) result {
		return run(t, append(textModel(root, "tiny_bart", "task=generate", "generate.in="+in, "generate.max_new_tokens=2",
			"hydra.run.dir="+folder(t)), more...)...)
	}
	if p := generate(); p.Code != 0 || strings.Count(p.Stderr, "is cut to 128") != 1 {
		t.Errorf("code %d, want 0 and one warning of a source cut to 128 tokens\n%s", p.Code, p.Stderr)
	}
	if p := run(t, tinySummaries("t5", "seq2seq.max_source_tokens=8", "dry_run=true",
		"hydra.run.dir="+folder(t))...); p.Code != 0 || !strings.Contains(p.Stderr, "sources are longer than seq2seq.max_source_tokens=8") {
		t.Errorf("code %d, want 0 and a warning of cut training sources\n%s", p.Code, p.Stderr)
	}
	mute := filepath.Join(t.TempDir(), "mute.jsonl")
	write(t, mute, strings.Repeat(`{"source": "The bridge is closed.", "target": "橋は閉鎖された"}`+"\n", 10))
	if p := run(t, "exp=t5_summarize", "threads=1", "seq2seq.path="+filepath.Join(root, "tiny_t5"), "data.texts.train="+mute, "dry_run=true",
		"checks.off=[preflight]", "hydra.run.dir="+folder(t)); p.Code != 0 ||
		!strings.Contains(p.Stderr, "rewards.rouge: the targets of 8 of the first 8 records of train have no word of ASCII letters") {
		t.Errorf("code %d, want 0 and a warning of texts that ROUGE does not count\n%s", p.Code, p.Stderr)
	}
	for _, tc := range []struct{ override, want string }{
		{"generate.max_new_tokens=129", "generate.max_new_tokens=129: the model has 128 positions"},
		{"generate.out=" + root, "this is a folder: want the name of a file"},
		{"generate.in=" + root, root + ": want a regular file, it is a folder\n"},
		{"seq2seq.path=random", "seq2seq.path=random: no such folder (did you mean seq2seq.path=null?"},
		{"seq2seq.path=" + filepath.Join(root, "tiny_t5/model.safetensors"), "want the folder, seq2seq.path=" + filepath.Join(root, "tiny_t5")},
		{"seq2seq.path=nowhere", "seq2seq.path=nowhere: no such folder, and nothing is downloaded: `hf download ORGANISATION/nowhere"},
	} {
		if p := generate(tc.override); p.Code != 2 || !strings.Contains(p.Stderr, tc.want) {
			t.Errorf("%s: code %d, %s\nwant 2, %s", tc.override, p.Code, p.Stderr, tc.want)
		}
	}
	if p := generate("generate.out="+root, "seq2seq.path="+t.TempDir()); p.Code != 2 || !strings.Contains(p.Stderr, "this is a folder: want") {
		t.Errorf("code %d, %s\nwant generate.out refused before the model is opened", p.Code, p.Stderr)
	}
}

// Killed anywhere and resumed, a run of the encoder-decoder ends with the same bytes.
func TestSummaryRunKilledAndResumed(t *testing.T) {
	t.Parallel()
	for i, model := range []string{"t5", "bart"} {
		want := folder(t)
		mustRun(t, tinySummaries(model, "hydra.run.dir="+want)...)
		moments := []string{`"kind":"step","phase":"sft","epoch":2`, `"kind":"step","phase":"grpo","epoch":2`}
		if testing.Short() { // one of them for each model
			moments = moments[i : i+1]
		}
		for _, at := range moments {
			dir := folder(t)
			p := start(t, tinySummaries(model, "hydra.run.dir="+dir)...)
			p.Until(func() bool { return strings.Contains(readIf(filepath.Join(dir, "metrics.jsonl")), at) })
			resumes := p.KillRun(dir)
			mustRun(t, "resume", dir)
			outcomeOf(t, want).Same(t, outcomeOf(t, dir), resumes)
		}
	}
}

// Training on a model folder: with adapters, and with all weights, the checkpoint and its exports give the same
// log-probabilities, and the base others. A run from random weights is exported whole.
func TestTextModelsTrainAndExport(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	data := filepath.Join(t.TempDir(), "train.jsonl")
	var lines []map[string]any
	for i := range 10 {
		lines = append(lines, map[string]any{"id": i, "source": fmt.Sprintf("The council met on day %d and closed the bridge.", i),
			"target": "Bridge closed."})
	}
	writeLines(t, data, "", lines...)
	in := filepath.Join(t.TempDir(), "in.jsonl")
	writeLines(t, in, "", map[string]any{"id": 1, "source": "The council met on day 3 and closed the bridge.",
		"completion": "Bridge closed."})
	score := func(more ...string) answerLine {
		out := filepath.Join(t.TempDir(), "out.jsonl")
		mustRun(t, append([]string{"policy=seq2seq", "threads=1", "seq2seq.dtype=float32", "task=score", "score.in=" + in,
			"score.out=" + out, "hydra.run.dir=" + folder(t)}, more...)...)
		return readAnswers(t, out)[0]
	}
	for _, tc := range []struct {
		exp, model string
		more       []string
	}{
		{"t5_summarize", "tiny_t5_v11", []string{"sft.lr=1e-2"}},
		{"bart_summarize", "tiny_bart", []string{"seq2seq.lora.enabled=false", "seq2seq.tune_all=true"}},
	} {
		dir := folder(t)
		base := "seq2seq.path=" + filepath.Join(root, tc.model)
		mustRun(t, append([]string{"exp=" + tc.exp, "threads=1", base, "data.texts.train=" + data, "data.texts.prefix=''",
			"data.train_ratio=0.6", "sft.epochs=2", "grpo.num_iterations=2",
			"seq2seq.generation.max_new_tokens=8", "rewards.length.weight=0.5", "report.plots=false", "hydra.run.dir=" + dir}, tc.more...)...)
		last := filepath.Join(dir, "checkpoints", "last.safetensors")
		trained, untrained := score(base, "init.checkpoint="+last), score(base)
		if trained.Sum < untrained.Sum+0.5 {
			t.Errorf("%s: log-probability %v of the target after training on it, %v before", tc.model, trained.Sum, untrained.Sum)
		}
		golden.Close(t, score("init.checkpoint="+last).LogProbs, trained.LogProbs, 0) // the run knows its base
		hf := filepath.Join(t.TempDir(), "hf")
		mustRun(t, "checkpoint", "export", last, "--format", "hf", "--out", hf)
		golden.Close(t, score("seq2seq.path="+hf).LogProbs, trained.LogProbs, 2e-4)
		peft := filepath.Join(t.TempDir(), "peft")
		if tc.exp == "bart_summarize" {
			refused(t, run(t, "checkpoint", "export", last, "--format", "peft", "--out", peft), 2,
				"has no adapters (seq2seq.lora.enabled=true trains some)")
			continue
		}
		mustRun(t, "checkpoint", "export", last, "--format", "peft", "--out", peft)
		golden.Close(t, score(base, "seq2seq.adapter="+peft).LogProbs, trained.LogProbs, 1e-5)
	}
	dir, hf := folder(t), filepath.Join(t.TempDir(), "hf")
	mustRun(t, tinySummaries("bart", "schedule=[sft]", "sft.epochs=1", "hydra.run.dir="+dir)...)
	last := filepath.Join(dir, "checkpoints", "last.safetensors")
	mustRun(t, "checkpoint", "export", last, "--format", "hf", "--out", hf)
	golden.Close(t, score("seq2seq.path="+hf).LogProbs, score("init.checkpoint="+last).LogProbs, 1e-5)
}

// What cannot be trained is refused before anything starts, with the key.
func TestRefusedTextRuns(t *testing.T) {
	t.Parallel()
	_, root := openTexts(t)
	in := filepath.Join(t.TempDir(), "in.jsonl")
	write(t, in, "{}\n")
	turns := filepath.Join(t.TempDir(), "turns.jsonl")
	const turn = `{"id":"turns-%d","messages":[%s{"role":"user","content":"The bridge is closed."},{"role":"assistant","content":"closed"}]}` + "\n"
	write(t, turns, fmt.Sprintf(turn+turn+turn, 1, "", 2, `{"role":"system","content":"Be short."},`, 3, ""))
	conversations := textModel(root, "tiny_t5", "data=conversations", "data.conversations.train="+turns, "schedule=[sft]", "data.batch_size=1")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{textModel(root, "tiny_bart", "exp=summaries_tiny", "seq2seq.lora.enabled=false"),
			"seq2seq: nothing would be trained: seq2seq.lora.enabled=true, or seq2seq.tune_all=true"},
		{textModel(root, "tiny_bart", "exp=summaries_tiny", "seq2seq.generation.max_new_tokens=129"),
			"seq2seq.generation.max_new_tokens=129: the model has 128 positions"},
		{[]string{"exp=summaries_tiny", "seq2seq.scratch.vocab_size=100"},
			"seq2seq.scratch.vocab_size: a vocabulary of 100 tokens: want at least 259"},
		{[]string{"policy=seq2seq", "task=generate", "generate.in=" + in}, "seq2seq.path: task=generate needs a model folder"},
		{[]string{"exp=shapes_vl", "policy=seq2seq"}, "policy=seq2seq reads a source text"},
		{conversations, "turns-2: a conversation of several turns or with pictures"},
		{textModel(root, "tiny_t5", "exp=summaries_tiny", "rewards.judge.weight=1", "rewards.judge.policy=seq2seq",
			"rewards.judge.path="+filepath.Join(root, "tiny_bart"), "rewards.judge.prompt='"+strings.Repeat("long ", 200)+"{completion}'"),
			"the model reads 128"},
	} {
		refused(t, run(t, append(tc.args, "threads=1", "hydra.run.dir="+folder(t))...), 2, tc.want)
	}
}
