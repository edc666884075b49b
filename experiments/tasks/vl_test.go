package tasks_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/runtest"
)

// reference is what the public implementation of Qwen2.5-VL made of the tiny models.
type reference struct {
	Prompts map[string]struct {
		Messages json.RawMessage   `json:"messages"`
		Images   []string          `json:"images"`
		Videos   []json.RawMessage `json:"videos"`
	} `json:"prompts"`
	Preprocess struct {
		Images map[string]struct {
			File string `json:"file"`
		} `json:"images"`
		Videos map[string]json.RawMessage `json:"videos"`
	} `json:"preprocess"`
	Generation map[string]json.RawMessage `json:"generation"`
	GRPO       map[string]struct {
		Prompt        string      `json:"prompt"`
		CompletionIDs [][]int64   `json:"completion_ids"`
		NewLogPs      [][]float64 `json:"new_logps_rows"`
	} `json:"grpo"`
}

func openReference(t *testing.T) (r reference, root string) {
	t.Helper()
	root = filepath.Dir(golden.Shared(t, "qwen2_5_vl", "expected.json"))
	golden.JSON(t, filepath.Join(root, "expected.json"), &r)
	return r, root
}

// line is a prompt of the reference as task=generate and task=score read it; paths are relative to root.
func (r reference) line(t *testing.T, name string) map[string]any {
	t.Helper()
	p, ok := r.Prompts[name]
	if !ok {
		t.Fatalf("the reference has no prompt %s", name)
	}
	images := []string{}
	for _, i := range p.Images {
		if known, ok := r.Preprocess.Images[i]; ok {
			i = known.File
		}
		images = append(images, i)
	}
	videos := []any{}
	for _, raw := range p.Videos {
		var name string
		if json.Unmarshal(raw, &name) == nil {
			raw = r.Preprocess.Videos[name]
		}
		var v struct {
			Frames []string `json:"frames"`
			FPS    float64  `json:"fps"`
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		videos = append(videos, map[string]any{"frames": v.Frames, "fps": v.FPS})
	}
	return map[string]any{"id": name, "messages": p.Messages, "images": images, "videos": videos}
}

type answerLine struct {
	ID            any       `json:"id"`
	PromptTokens  int       `json:"prompt_tokens"`
	CompletionIDs []int64   `json:"completion_ids"`
	Completion    string    `json:"completion"`
	FinishReason  string    `json:"finish_reason"`
	LogProbs      []float64 `json:"logprobs"`
	Sum           float64   `json:"sum"`
}

func readAnswers(t *testing.T, path string) []answerLine {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []answerLine
	for s := bufio.NewScanner(f); s.Scan(); {
		var a answerLine
		if err := json.Unmarshal(s.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

func model(root, name string, more ...string) []string {
	return append([]string{"policy=qwen2_5_vl", "threads=1", "vl.path=" + filepath.Join(root, name), "vl.dtype=float32"}, more...)
}

// task=generate gives the very tokens that the public implementation gives: text, images of every mode,
// videos; one shard or two, tied or not, stored in float32 or bfloat16.
func TestGenerateGivesTheReferencesTokens(t *testing.T) {
	t.Parallel()
	r, root := openReference(t)
	for _, name := range []string{"tiny_tied", "tiny_untied_bf16"} {
		want := map[string][]int64{}
		var lines []map[string]any
		for prompt := range r.Prompts {
			var g struct {
				NewIDs []int64 `json:"new_ids"`
			}
			raw, ok := r.Generation[name+"."+prompt]
			if !ok {
				continue
			}
			if err := json.Unmarshal(raw, &g); err != nil {
				t.Fatal(err)
			}
			want[prompt] = g.NewIDs
			lines = append(lines, r.line(t, prompt))
		}
		if len(lines) == 0 {
			continue
		}
		dir := folder(t)
		in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
		writeLines(t, in, root, lines...)
		mustRun(t, model(root, name, "task=generate", "generate.in="+in, "generate.out="+out, "generate.max_new_tokens=16",
			"generate.do_sample=false",
			"generate.ignore_eos=true", "generate.repetition_penalty=1.0", "generate.batch_size=3", "hydra.run.dir="+dir)...)
		got := readAnswers(t, out)
		if len(got) != len(lines) {
			t.Fatalf("%s: %d answers to %d prompts", name, len(got), len(lines))
		}
		for i, a := range got {
			if a.ID != lines[i]["id"] {
				t.Errorf("%s: answer %d is to %v, want %v: the order of the input", name, i, a.ID, lines[i]["id"])
			}
			if !slices.Equal(a.CompletionIDs, want[a.ID.(string)]) || a.FinishReason != "length" {
				t.Errorf("%s: %v: %v (%s), want %v", name, a.ID, a.CompletionIDs, a.FinishReason, want[a.ID.(string)])
			}
		}
	}
}

// task=score gives the public implementation's log-probability of every token, under an adapter.
func TestScoreGivesTheReferencesLogProbs(t *testing.T) {
	t.Parallel()
	r, root := openReference(t)
	g := r.GRPO["mid"]
	var lines []map[string]any
	for i, ids := range g.CompletionIDs {
		line := r.line(t, g.Prompt)
		line["id"], line["completion_ids"] = i, ids
		lines = append(lines, line)
	}
	in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
	writeLines(t, in, root, lines...)
	mustRun(t, model(root, "tiny_tied", "task=score", "vl.adapter="+filepath.Join(root, "adapters", "mid"), "score.in="+in,
		"score.out="+out, "hydra.run.dir="+folder(t))...)
	for i, a := range readAnswers(t, out) {
		golden.Close(t, a.LogProbs, g.NewLogPs[i], 1e-4)
		sum := 0.0
		for _, x := range a.LogProbs {
			sum += x
		}
		if math.Abs(sum-a.Sum) > 1e-9 {
			t.Errorf("sum %v of %v", a.Sum, a.LogProbs)
		}
	}
}

// A bad line is named by number, the good ones are answered, and the exit code is 1.
func TestBadLinesAreNamed(t *testing.T) {
	t.Parallel()
	_, root := openReference(t)
	in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
	text := `{"id": 1, "messages": [{"role": "user", "content": "Hi"}], "completion": "Hello"}
{"id": 2, "messages": [{"role": "user", "content": "Hi"}]}

{"id": 4, "messages": [{"role": "user", "content": [{"type": "image"}]}], "images": ["missing.png"], "completion": "x"}
{"id": 5, "messages"
{"id": 6, "messages": [{"role": "user", "content": "Hi"}], "completion_ids": [3, 100000]}
{"id": "seven", "messages": [{"role": "user", "content": "Hi"}], "completion_ids": [5]}
`
	if err := os.WriteFile(in, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := run(t, model(root, "tiny_tied", "task=score", "score.in="+in, "score.out="+out, "hydra.run.dir="+folder(t))...)
	if p.Code != 1 {
		t.Errorf("exit code %d, want 1\n%s", p.Code, p.Stderr)
	}
	for _, want := range []string{in + ":2: ", "completion_ids", in + ":4: ", "missing.png", in + ":5: ", in + ":6: ", "100000",
		"4 bad lines: 2, 4, 5, 6"} {
		if !strings.Contains(p.Stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, p.Stderr)
		}
	}
	got := readAnswers(t, out)
	if len(got) != 2 || got[0].ID != 1.0 || got[1].ID != "seven" {
		t.Errorf("answers %+v, want those of lines 1 and 7", got)
	}
	long := run(t, model(root, "tiny_tied", "task=generate", "generate.in="+in, "generate.max_new_tokens=1000000",
		"hydra.run.dir="+folder(t))...)
	refused(t, long, 1, in+":1: the prompt has ", "the completion up to 1000000", "max_position_embeddings in config.json")
	onto := run(t, model(root, "tiny_tied", "task=score", "score.in="+in, "score.out="+in, "hydra.run.dir="+folder(t))...)
	refused(t, onto, 2, "score.out="+in+": this is score.in, which would be overwritten")
	if kept, err := os.ReadFile(in); err != nil || string(kept) != text {
		t.Errorf("the input is gone: %q, %v", kept, err)
	}
}

// The token policy keeps the promise of all runs: killed anywhere and resumed, it ends with the same bytes.
func TestVisionLanguageRunKilledAndResumed(t *testing.T) {
	t.Parallel()
	want := folder(t)
	mustRun(t, runtest.TinyShapes("hydra.run.dir="+want)...)
	moments := []string{`"kind":"step","phase":"sft","epoch":2`, `"kind":"step","phase":"grpo","epoch":2`, `"kind":"step","phase":"rce"`}
	if testing.Short() {
		moments = moments[:2]
	}
	for _, at := range moments {
		dir := folder(t)
		p := start(t, runtest.TinyShapes("hydra.run.dir="+dir)...)
		p.Until(func() bool { return strings.Contains(readIf(filepath.Join(dir, "metrics.jsonl")), at) })
		resumes := p.KillRun(dir)
		mustRun(t, "resume", dir)
		outcomeOf(t, want).Same(t, outcomeOf(t, dir), resumes)
		if a, b := read(t, filepath.Join(want, "completions.jsonl")), read(t, filepath.Join(dir, "completions.jsonl")); a != b {
			t.Errorf("killed at %s: completions.jsonl differs", at)
		}
	}
}

// conversations writes a file of questions about pictures of one colour.
func conversations(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	var records []any
	for i := range n {
		name := fmt.Sprintf("%d.png", i)
		writePicture(t, filepath.Join(dir, name), color.RGBA{uint8(40 * i), uint8(255 - 30*i), uint8(90 * (i % 3)), 255})
		records = append(records, map[string]any{"id": name, "image": name, "conversations": []map[string]string{
			{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt",
				"value": fmt.Sprintf("<think>look</think><answer>move%d, stop</answer>", i%2)},
		}})
	}
	text, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "train.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// LoRA on a model folder: SFT and GRPO move the adapter, the checkpoint, its PEFT export and the merged
// export give the same log-probabilities, and the base alone gives others.
func TestLoRAOnAFolderTrainsAndExports(t *testing.T) {
	t.Parallel()
	_, root := openReference(t)
	data, dir := conversations(t, 8), folder(t)
	mustRun(t, model(root, "tiny_tied", "exp=qwen2_5_vl_actions", "data.conversations.train="+data, "data.train_ratio=0.75",
		"schedule=[sft,grpo]", "sft.epochs=2", "sft.lr=1e-2", "grpo.lr=1e-3",
		"vl.generation.max_new_tokens=8", "rewards.length.weight=0.5", "report.plots=false", "hydra.run.dir="+dir)...)

	line := map[string]any{"id": 1, "images": []string{"0.png"}, "completion": "<think>look</think><answer>move0, stop</answer>",
		"messages": []any{map[string]any{"role": "user", "content": []any{map[string]string{"type": "image"},
			map[string]string{"type": "text", "text": "\nWhat is it?"}}}}}
	in := filepath.Join(t.TempDir(), "in.jsonl")
	writeLines(t, in, filepath.Dir(data), line)
	score := func(more ...string) answerLine {
		out := filepath.Join(t.TempDir(), "out.jsonl")
		mustRun(t, append([]string{"policy=qwen2_5_vl", "threads=1", "vl.dtype=float32", "task=score", "score.in=" + in,
			"score.out=" + out, "hydra.run.dir=" + folder(t)}, more...)...)
		return readAnswers(t, out)[0]
	}
	base := "vl.path=" + filepath.Join(root, "tiny_tied")
	last := filepath.Join(dir, "checkpoints", "last.safetensors")
	trained, untrained := score(base, "init.checkpoint="+last), score(base)
	if trained.Sum < untrained.Sum+1 {
		t.Errorf("log-probability %v of the target after training on it, %v before", trained.Sum, untrained.Sum)
	}
	for typed, want := range map[string]string{"vl.lora.rank=16": "trained with 8",
		"vl.lora.target_modules=[q_proj]": "[k_proj o_proj q_proj v_proj]"} {
		refused(t, run(t, model(root, "tiny_tied", "exp=qwen2_5_vl_actions", "data.conversations.train="+data, "init.checkpoint="+last,
			typed, "hydra.run.dir="+folder(t))...), 2, typed+" contradicts ", want)
	}
	hf, peft := filepath.Join(t.TempDir(), "hf"), filepath.Join(t.TempDir(), "peft")
	mustRun(t, "checkpoint", "export", last, "--format", "hf", "--out", hf)
	mustRun(t, "checkpoint", "export", last, "--format", "peft", "--out", peft)
	golden.Close(t, score(base, "vl.adapter="+peft).LogProbs, trained.LogProbs, 1e-5)
	golden.Close(t, score("vl.path="+hf).LogProbs, trained.LogProbs, 2e-4)
	if refused := run(t, "checkpoint", "export", last, "--format", "pt", "--out",
		filepath.Join(t.TempDir(), "x.pt")); refused.Code != 2 || !strings.Contains(refused.Stderr, "qwen2_5_vl") {
		t.Errorf("export as pt: exit code %d, %s", refused.Code, refused.Stderr)
	}
}

// The picture matters: a blank one in its place changes the answer and what the answer earns.
func TestABlankPictureChangesTheReward(t *testing.T) {
	t.Parallel()
	r, root := openReference(t)
	line := r.line(t, "one_image")
	blank := filepath.Join(t.TempDir(), "blank.png")
	writePicture(t, blank, color.RGBA{128, 128, 128, 255})
	in := filepath.Join(t.TempDir(), "in.jsonl")
	writeLines(t, in, root, line)
	seen := read(t, in)
	other := line
	other["images"] = []string{blank}
	writeLines(t, in, "", other)
	if err := os.WriteFile(in, []byte(seen+read(t, in)), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.jsonl")
	mustRun(t, model(root, "tiny_tied", "task=generate", "generate.in="+in, "generate.out="+out, "generate.do_sample=false",
		"generate.max_new_tokens=16", "generate.repetition_penalty=1", "hydra.run.dir="+folder(t))...)
	a := readAnswers(t, out)
	if slices.Equal(a[0].CompletionIDs, a[1].CompletionIDs) {
		t.Errorf("the same answer %v with and without the picture", a[0].CompletionIDs)
	}
}
