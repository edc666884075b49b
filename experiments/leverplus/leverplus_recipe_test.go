package leverplus_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/rewardutil/vqa"
)

// The reference's whole recipe with its own switches and files of ours: SFT of a v2 selector, RCE from it by each file that it leaves,
// GRPO from RCE's checkpoint, both at once, a first try, predictions, answers, and the table of VQA accuracy against the v2 run.
func TestLeverPlusRecipe(t *testing.T) {
	t.Parallel()
	work := folder(t)
	in := func(name string) string { return filepath.Join(work, name) }
	data := beams(t, records())
	file := func(i int) string {
		_, path, _ := strings.Cut(data[i], "=")
		return path
	}
	mustRun(t, small(data, "selector=v2", "schedule=[sft]", "sft.epochs=1", "hydra.run.dir="+in("sft"))...)
	plus := func(out string, switches ...string) result {
		t.Helper()
		args := append([]string{"lever-plus", "--beam_data", file(1), "--img_emb", file(2), "--device", "cpu", "--output_dir", in(out)},
			switches...)
		return mustRun(t, append(args, "logging.progress=false", "report.plots=false")...)
	}
	const fresh = "query_update_gate.weight and query_update_gate.bias start fresh, from seed"
	mustRun(t, "checkpoint", "export", in("sft"), "--format", "v2", "--out", in("v2.ckpt"))
	starts := map[string]string{"A": in("sft"), "file": in("sft/checkpoints/best.safetensors"), "v2": in("v2.ckpt")}
	for out, checkpoint := range starts {
		r := plus(out, "--sft_ckpt", checkpoint, "--rce_epochs", "1", "--grpo_epochs", "0")
		if !strings.Contains(r.Stdout+r.Stderr, fresh) {
			t.Errorf("%s: the console does not name the fresh parts:\n%s%s", checkpoint, r.Stdout, r.Stderr)
		}
	}
	for out, checkpoint := range map[string]string{"B": in("A/rce_epoch1.pt"), "B_run": in("A"),
		"B_file": in("A/checkpoints/rce_epoch1.safetensors")} {
		plus(out, "--sft_ckpt", checkpoint, "--rce_epochs", "0", "--grpo_epochs", "1")
	}
	plus("whole", "--sft_ckpt", in("sft"), "--rce_epochs", "1", "--grpo_epochs", "3")
	for _, same := range [][2]string{{"A", "file"}, {"A", "v2"}, {"A", "whole"}} {
		if read(t, in(same[0]+"/rce_epoch1.pt")) != read(t, in(same[1]+"/rce_epoch1.pt")) {
			t.Errorf("%s and %s come to other weights", starts[same[0]], same[1])
		}
	}
	for _, other := range []string{"B_run", "B_file"} {
		if read(t, in("B/grpo_epoch1.pt")) != read(t, in(other+"/grpo_epoch1.pt")) {
			t.Errorf("%s starts from something else than rce_epoch1.pt", other)
		}
	}
	for name, want := range map[string]bool{"rce_epoch1.pt": true, "grpo_epoch3.pt": true, "rce_epoch2.pt": false} {
		if exists(in("whole/"+name)) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
	plus("tried", "--sft_ckpt", in("sft"), "--rce_epochs", "1", "--grpo_epochs", "3", "--max_samples", "100", "--dry_run")
	if _, err := os.Stat(in("tried")); !os.IsNotExist(err) {
		t.Errorf("the dry run left a folder: %v", err)
	}
	judgeAnswers(t, work, file(2), []string{in("sft"), in("whole")})
}

// judgeAnswers lets a frozen model answer the held-out questions with what each of two runs chooses for them, and compares the runs by
// official VQA accuracy.
func judgeAnswers(t *testing.T, work, embeddings string, runs []string) {
	t.Helper()
	const held = 12
	var lines strings.Builder
	var truth []vqa.Annotation
	for i := range fixtureRows {
		split := "train"
		if i >= fixtureRows-held {
			split = "val"
			a := vqa.Annotation{QuestionID: int64(500 + i), ImageID: int64(i), QuestionType: "other", AnswerType: "other"}
			for k := range 10 {
				a.Answers = append(a.Answers, vqa.Answer{Answer: fmt.Sprintf("word %d", (i+k)%3)})
			}
			truth = append(truth, a)
		}
		fmt.Fprintf(&lines, `{"id": %d, "image": %q, "question": "which of %d?", "answers": ["word %d", "no"], "image_id": %d, "split": %q}`+"\n",
			500+i, golden.Shared(t, "qwen2_5_vl", "images", fmt.Sprintf("img%d.png", i%4)), i, i%3, i, split)
	}
	in := func(name string) string { return filepath.Join(work, name) }
	write(t, in("records.jsonl"), lines.String())
	text, err := json.Marshal(map[string]any{"annotations": truth})
	if err != nil {
		t.Fatal(err)
	}
	write(t, in("annotations.json"), string(text))
	ask := []string{"threads=1", "data.records_icl=" + in("records.jsonl")}
	model := "lvlm.path=" + filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	mustRun(t, append(slices.Clone(ask), "task=beams", "beams.split=val", "beams.score=none", "beams.candidates=8",
		"beams.records="+in("ask.json"), "hydra.run.dir="+in("pools"))...)
	scored := []string{}
	for i, trained := range runs {
		out := in(fmt.Sprint("predicted", i))
		mustRun(t, "task=predict", "threads=1", "init.checkpoint="+trained, "data=beams", "data.beams="+in("ask.json"),
			"data.embeddings="+embeddings, "hydra.run.dir="+out)
		mustRun(t, append(slices.Clone(ask), model, "task=infer", "infer.method=predictions", "infer.shots=2",
			"infer.predictions="+filepath.Join(out, "predictions.jsonl"), "infer.out="+filepath.Join(out, "results.json"),
			"hydra.run.dir="+in(fmt.Sprint("answered", i)))...)
		scored = append(scored, in(fmt.Sprint("scored", i)))
		r := mustRun(t, "task=evaluate", "evaluate.results="+filepath.Join(out, "results.json"), "evaluate.annotations="+in("annotations.json"),
			"hydra.run.dir="+scored[i])
		if !strings.Contains(r.Stdout, "12 questions") {
			t.Errorf("the table of %s: %s", trained, r.Stdout)
		}
	}
	if table := mustRun(t, "report", scored[1], scored[0]); !strings.Contains(table.Stdout, "| B | result file | 12 |") {
		t.Errorf("the comparison:\n%s", table.Stdout)
	}
}
