package leverplus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// leverPlusArgs are the reference's switches for a small RL file.
func leverPlusArgs(t *testing.T, more ...string) []string {
	data := beams(t, records())
	file := func(key string) string {
		for _, o := range data {
			if path, ok := strings.CutPrefix(o, key+"="); ok {
				return path
			}
		}
		t.Fatalf("no %s in %q", key, data)
		return ""
	}
	return append([]string{"lever-plus", "--beam_data", file("data.beams"), "--img_emb=" + file("data.embeddings"), "--dev", "cpu"},
		more...)
}

// A user's old command line works after one word is changed; what it prints is a command line of ours that
// gives the same run.
func TestLeverPlus(t *testing.T) {
	t.Parallel()
	dir, other := folder(t), folder(t)
	r := mustRun(t, leverPlusArgs(t, "--rce_epochs", "1", "--grpo_epochs", "5", "--grpo_ep=1", "--output_dir", dir, "--rce_lr",
		"3e-4", "--use_logprob", "--candidate_size", "64",
		"selector.hidden_dim=32", "logging.progress=false", "report.plots=false")...)
	line, rest, _ := strings.Cut(r.Stdout, "\n")
	if !strings.HasPrefix(line, "run exp=lever_plus_compat ") || !strings.HasPrefix(rest, "lever_plus_compat on beams → "+dir) {
		t.Errorf("first lines:\n%s", r.Stdout)
	}
	for _, want := range []string{"rce.lr=3e-4", "grpo.epochs=1", "data.batch_size=1", "data.reward.use_logprob=true",
		"selector.hidden_dim=32"} {
		if !strings.Contains(line, " "+want) {
			t.Errorf("the line lacks %s: %s", want, line)
		}
	}
	if !strings.Contains(r.Stderr, "--candidate_size has no effect") {
		t.Errorf("no notice: %s", r.Stderr)
	}
	cmd := exec.Command("sh", "-c", strings.Replace(line, "run ", "'"+program(t)+"' ", 1)+" hydra.run.dir="+other)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the printed line does not run: %v\n%s", err, out)
	}
	a, b := outcomeOf(t, dir), outcomeOf(t, other)
	a.Same(t, b, 0)
	for _, name := range []string{"rce_epoch1.pt", "grpo_epoch1.pt"} { // the reference's own file names
		if read(t, filepath.Join(dir, name)) != read(t, filepath.Join(other, name)) {
			t.Errorf("%s differs", name)
		}
		inspected := mustRun(t, "checkpoint", "inspect", filepath.Join(dir, name))
		if !strings.Contains(inspected.Stdout, `"kl_beta":`) || !strings.Contains(inspected.Stdout, `"val_loss":`) ||
			!strings.Contains(inspected.Stdout, "epoch = 1\n") {
			t.Errorf("%s: %s", name, inspected.Stdout)
		}
	}

	if rows := read(t, filepath.Join(dir, "metrics.jsonl")); strings.Contains(rows, "val_paired_error") {
		t.Error("the reference's best is the highest, whatever the noise")
	}
	if s := read(t, filepath.Join(dir, "summary.json")); !strings.Contains(s, `"metric": "val_loss"`) || strings.Contains(s, `"held_out"`) {
		t.Errorf("the reference chooses by val_loss and trains on whole pools: %s", s)
	}
	more := mustRun(t, append([]string{"task=predict", "threads=1", "init.checkpoint=" + dir, "hydra.run.dir=" + folder(t)},
		beams(t, records())...)...)
	if !strings.Contains(more.Stdout, "predictions: 24 queries") {
		t.Errorf("the run cannot be used: %s", more.Stdout)
	}
	refused(t, run(t, leverPlusArgs(t, "--output_dir", dir)...), 2, "already holds a run")
	refused(t, run(t, leverPlusArgs(t, "--output_dir", folder(t), "selector=v3_skip")...), 2, "checkpoint.format=pt", "skip_scale")
}

// A command line is tried before it is run: --dry_run checks everything and leaves nothing, --max_samples trains on a few.
func TestLeverPlusTries(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "run")
	r := mustRun(t, leverPlusArgs(t, "--dry_run", "--max_samples", "3", "--grpo_epochs", "1", "--output_dir", dir,
		"selector.hidden_dim=16", "logging.progress=false")...)
	if line, _, _ := strings.Cut(r.Stdout, "\n"); !strings.Contains(line, " data.max_samples=3 dry_run=true") {
		t.Errorf("overrides: %s", line)
	}
	if _, err := os.Stat(filepath.Join(dir, "summary.json")); !os.IsNotExist(err) {
		t.Errorf("a dry run left a summary: %v", err)
	}
	mustRun(t, leverPlusArgs(t, "--max_s", "3", "--rce_epochs", "1", "--output_dir", dir, "selector.hidden_dim=16",
		"logging.progress=false")...)
	var summary struct {
		Data struct{ Counts map[string]int }
	}
	readJSON(t, filepath.Join(dir, "summary.json"), &summary)
	if n := summary.Data.Counts["rce_queries"]; n != 3 {
		t.Errorf("trained on %d queries, want 3: %v", n, summary.Data.Counts)
	}
	refused(t, run(t, leverPlusArgs(t, "--max_samples", "0", "--output_dir", folder(t))...), 2, "data.max_samples=0")
}

func TestLeverPlusRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"a typing error", []string{"--rce_epoch5", "1"}, 2, "did you mean --rce_epochs?"},
		{"an ambiguous prefix", []string{"--rce", "1"}, 2, "unknown flag --rce"},
		{"a value of another type", []string{"--rce_epochs", "2.5"}, 2, "rce.epochs=2.5"},
		{"no value", []string{"--rce_lr"}, 2, "flag needs an argument: --rce_lr"},
		{"a choice", []string{"--normalize_method", "z_scor"}, 2, "data.normalize.method"},
		{"hybrid", []string{"--reward_mode", "hybrid"}, 2, "fails when it trains"},
		{"neither switch nor override", []string{"beams.json"}, 2, `"beams.json" is neither a switch of the reference nor an override`},
		{"a key that does not exist", []string{"grpo.kl.bta=1"}, 2, "did you mean grpo.kl.beta?"},
		{"a value out of range", []string{"--clip_epsilon", "1.5"}, 2, "grpo.clip.epsilon=1.5: want a number in (0, 1)"},
		{"no such beam file", []string{"--beam_data", "nowhere.json"}, 2, "nowhere.json: no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, run(t, leverPlusArgs(t, append([]string{"--output_dir", folder(t)}, tc.args...)...)...), tc.code, tc.want)
		})
	}
	refused(t, run(t, "lever-plus", "--img_emb", "e.pt"), 2, "the following arguments are required: --beam_data")
	refused(t, run(t, "lever-plus", "--beam_data", "b.json"), 2, "--img_emb FILE is needed")
	help := mustRun(t, "lever-plus", "-h")
	for _, want := range []string{"--beam_data BEAM_DATA", "grpo.freeze=[input_proj,query_proj,cand_proj]", "[z_score_clamp]"} {
		if !strings.Contains(help.Stdout, want) {
			t.Errorf("-h lacks %q", want)
		}
	}
}

// A foreign checkpoint through every layout and back, by the program.
func TestCheckpointExport(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	refused(t, run(t, "checkpoint", "export", dir, "--format", "pt"), 1, "no place for", "skip_scale", "relation.",
		"format safetensors holds any selector")
	work := t.TempDir()
	model := folder(t)
	mustRun(t, append(small(beams(t, records()), "selector=v3", "selector.hidden_dim=32", "hydra.run.dir="+model), "grpo.epochs=0")...)
	in := func(name string) string { return filepath.Join(work, name) }
	original := mustRun(t, "checkpoint", "export", model, "--format", "safetensors", "--out", in("a.safetensors"))
	if !strings.Contains(original.Stdout, "tensors as safetensors → "+in("a.safetensors")) {
		t.Errorf("says %q", original.Stdout)
	}
	for _, format := range []string{"pt", "ckpt", "v2"} {
		mustRun(t, "checkpoint", "export", in("a.safetensors"), "--format="+format, "--out", in("b."+format))
		mustRun(t, "checkpoint", "export", in("b."+format), "--format", format, "--out", in("c."+format))
		if read(t, in("b."+format)) != read(t, in("c."+format)) {
			t.Errorf("%s: exported again it has other bytes", format)
		}
		mustRun(t, "checkpoint", "verify", in("b."+format))
		predict := func(checkpoint string) string {
			out := folder(t)
			mustRun(t, append([]string{"task=predict", "threads=1", "selector.shot_num=2", "init.checkpoint=" + checkpoint,
				"hydra.run.dir=" + out}, beams(t, records())...)...)
			return read(t, filepath.Join(out, "predictions.jsonl"))
		}
		if predict(in("b."+format)) != predict(model) {
			t.Errorf("%s: predicts something else than the run", format)
		}
	}
	refused(t, run(t, "checkpoint", "export", model, "--format", "pt", "--out", in("b.pt")), 2, "exists: --force replaces it")
	mustRun(t, "checkpoint", "export", model, "--format", "pt", "--out", in("b.pt"), "--force")
	refused(t, run(t, "checkpoint", "export", model, "--format", "onnx"), 2, "--format=onnx: want one of ckpt, pt, safetensors, v2")
	refused(t, run(t, "checkpoint", "export", model), 2, "--format ckpt|pt|safetensors|v2")
	refused(t, run(t, "checkpoint", "export", in("none.pt"), "--format", "pt"), 2, "none.pt")
	refused(t, run(t, "checkpoint", "export", model, "--format", "pt", "--out", in("no/such/folder.pt")), 2, "no such file or directory")
	for _, evil := range []string{"evil.pt", "evil_legacy.pt"} {
		for _, args := range [][]string{{"inspect"}, {"verify"}, {"export", "--format=pt", "--out=" + in("evil.out")}} {
			refused(t, run(t, append([]string{"checkpoint"}, append(args, "../../internal/tensorfile/testdata/"+evil)...)...), 1,
				`the file asks for "posix.system"`)
		}
	}
	if left := leftovers(t, work); len(left) > 0 {
		t.Errorf("temporary files: %v", left)
	}
}

// A v2 run starts a v3 one: the gate is fresh, and the console and the report name it. It goes through the reference's
// layouts too.
func TestV2RunStartsV3(t *testing.T) {
	t.Parallel()
	data, work := beams(t, records()), folder(t)
	v2, v3, again := filepath.Join(work, "v2"), filepath.Join(work, "v3"), filepath.Join(work, "again")
	shape := []string{"selector.hidden_dim=16", "rce.epochs=1", "grpo.epochs=0"}
	mustRun(t, append(append(small(data, shape...), "selector=v2"), "hydra.run.dir="+v2)...)
	r := mustRun(t, append(append(small(data, shape...), "selector=v3", "init.checkpoint="+v2), "hydra.run.dir="+v3)...)
	const fresh = "query_update_gate.weight and query_update_gate.bias start fresh, from seed"
	if !strings.Contains(r.Stdout+r.Stderr, fresh) {
		t.Errorf("the console does not name the fresh parts:\n%s%s", r.Stdout, r.Stderr)
	}
	if report := read(t, filepath.Join(v3, "report.md")); !strings.Contains(report, fresh) {
		t.Errorf("the report does not name the fresh parts:\n%s", report)
	}
	refused(t, run(t, append(data, "task=predict", "selector=v3", "init.checkpoint="+v2, "hydra.run.dir="+folder(t))...), 2,
		"v3 contradicts", "trained with v2")
	for _, format := range []string{"ckpt", "v2"} {
		file := filepath.Join(work, format+".pt")
		mustRun(t, "checkpoint", "export", v2, "--format", format, "--out", file)
		dir := again + format
		mustRun(t, append(append(small(data, shape...), "selector=v3", "init.checkpoint="+file), "hydra.run.dir="+dir)...)
		if a, b := read(t, filepath.Join(v3, "checkpoints", "rce_epoch1.safetensors")), read(t,
			filepath.Join(dir, "checkpoints", "rce_epoch1.safetensors")); len(a) != len(b) {
			t.Errorf("%s: the run from the export is another", format)
		}
	}
	refused(t, run(t, "checkpoint", "export", v2, "--format", "pt", "--out", filepath.Join(work, "x.pt")), 1, "needs [query_update_gate")
}
