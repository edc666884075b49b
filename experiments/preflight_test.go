package experiments_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// trainedWeights returns the bytes of a run's checkpoints by name.
func trainedWeights(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*.safetensors"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d checkpoints in %s (%v)", len(files), dir, err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = data
	}
	return out
}

// withoutTimes returns metrics.jsonl without events, times and the machine's speed.
func withoutTimes(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(read(t, filepath.Join(dir, "metrics.jsonl"))) {
		if !strings.Contains(line, `"kind":"event"`) {
			out = append(out, regexp.MustCompile(`"(time|step_seconds)":("[^"]*"|[^,}]*),?`).ReplaceAllString(line, ""))
		}
	}
	return strings.Join(out, "")
}

// A run with the preflight and one without are the same, bit for bit, whatever the policy.
func TestPreflightChangesNothing(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"pointer": tiny("schedule=[sft,rce,grpo,grpo_online]", "sft.epochs=1", "rce.epochs=1", "grpo.epochs=1",
			"grpo_online.epochs=1", "selector.dropout=0.1", "report.plots=false", "logging.tensorboard=false"),
		"shapes_vl": {"exp=shapes_vl", "data.batch_size=4", "data.shapes.train_queries=24", "data.shapes.reader_questions=4",
			"data.shapes.val_queries=8", "data.shapes.dev_queries=8", "data.shapes.pool_size=8",
			"sft.epochs=1", "rce.epoch_queries=8", "grpo.epochs=1", "grpo.epoch_queries=8", "vl.scratch.hidden_size=16",
			"vl.scratch.intermediate_size=16", "vl.scratch.num_hidden_layers=1",
			"vl.scratch.vision.depth=1", "vl.scratch.vision.hidden_size=16", "vl.scratch.vision.intermediate_size=16",
			"vl.scratch.vision.fullatt_block_indexes=[0]", "report.plots=false", "logging.tensorboard=false"},
	} {
		t.Run(name, func(t *testing.T) {
			on, off := folder(t), folder(t)
			said := mustRun(t, append(args, "checks.off=[doctor]", "hydra.run.dir="+on)...)
			mustRun(t, append(args, "checks.off=[preflight,doctor]", "hydra.run.dir="+off)...)
			if log := read(t, filepath.Join(on, "run.log")); !strings.Contains(log, "preflight: ") ||
				!strings.Contains(log, "memory: largest step (") {
				t.Errorf("run.log says nothing of the preflight:\n%s%s", log, said.Stderr)
			}
			if strings.Contains(read(t, filepath.Join(off, "run.log")), "preflight") {
				t.Error("the preflight was off and spoke")
			}
			got, want := trainedWeights(t, on), trainedWeights(t, off)
			for name, data := range want {
				if !bytes.Equal(got[name], data) {
					t.Errorf("%s differs with the preflight", name)
				}
			}
			if got, want := withoutTimes(t, on), withoutTimes(t, off); got != want {
				t.Error("metrics.jsonl differs with the preflight")
			}
		})
	}
}

// dry_run=true makes the preflight alone, prints what it finds, and fails on a stop.
func TestDryRun(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	said := mustRun(t, tiny("dry_run=true", "checks.off=[]", "hydra.run.dir="+dir)...)
	if !regexp.MustCompile(`(?m)^preflight: \d+ checks, nothing found$`).MatchString(said.Stdout) {
		t.Errorf("stdout: %s", said.Stdout)
	}
	shown(t, said.Stdout, `^of +passed +what was seen$`, `^model +parameters +\d+, all trained$`,
		`^inputs +pool embeddings +\d+ × \d+ × \d+ \(queries × candidates of a pool × columns\)$`,
		`^rce +parameters_do_not_move +(\d+) of \d+ tensors moved in 3 steps, a weight of \S+ the farthest, by 0\.\d+$`)
	if _, err := os.Stat(dir); err == nil {
		t.Error("a dry run made its folder")
	}
	bad := run(t, tiny("dry_run=true", "checks.off=[]", "rce.lr=1e-30", "hydra.run.dir="+dir)...)
	if bad.Code != 1 || !strings.Contains(bad.Stdout, "parameters_do_not_move") || !strings.Contains(bad.Stdout, "1 stop") ||
		!strings.Contains(bad.Stderr, "rce.lr is too small") {
		t.Errorf("exit code %d\n%s%s", bad.Code, bad.Stdout, bad.Stderr)
	}
	soft := mustRun(t, tiny("dry_run=true", "checks.off=[]", "rce.lr=1e-30",
		"checks.severity.parameters_do_not_move=note", "hydra.run.dir="+dir)...)
	if !strings.Contains(soft.Stdout, "note     rce: parameters_do_not_move") || !strings.Contains(soft.Stdout, "1 note") {
		t.Errorf("stdout: %s", soft.Stdout)
	}
	jobs := run(t, tiny("-m", "dry_run=true", "checks.off=[]", "rce.lr=1e-3,1e-30", "hydra.sweep.dir="+dir)...)
	if jobs.Code != 1 || !strings.Contains(jobs.Stdout, "nothing found\n#1 ") ||
		!strings.Contains(jobs.Stderr, "1 of 2 jobs would not start (#1)") {
		t.Errorf("exit code %d\n%s%s", jobs.Code, jobs.Stdout, jobs.Stderr)
	}
	jobs = run(t, tiny("-m", "dry_run=true", "hydra/sweeper=random", "rce.lr=interval(1e-4,1e-3)", "hydra.sweep.dir="+dir)...)
	if jobs.Code != 0 || !strings.HasSuffix(jobs.Stdout, "2 jobs tried, nothing was trained or written\n") {
		t.Errorf("exit code %d\n%s%s", jobs.Code, jobs.Stdout, jobs.Stderr)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the dry run of a sweep made its folder")
	}
}

// The dry run of a token policy shows adapters, parameters trained and in all, and what the model reads by name and shape.
func TestDryRunShowsEvidence(t *testing.T) {
	t.Parallel()
	records, err := filepath.Abs("../docs/examples/vl/conversations.json")
	if err != nil {
		t.Fatal(err)
	}
	said := mustRun(t, "exp=qwen2_5_vl_actions", "vl.path="+filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json")),
		"data.conversations.train="+records, "data.conversations.val="+records, "vl.generation.max_new_tokens=4", "dry_run=true",
		"hydra.run.dir="+folder(t))
	shown(t, said.Stdout, `^model +adapters +16, on k_proj, o_proj, q_proj, v_proj$`,
		`^model +parameters +14336 of 310208 trained \(4.62 %\), in 32 tensors$`,
		`^inputs +input_ids +3 × \d+ \(prompts of train × the longest one's tokens\)$`,
		`^inputs +pixel_values +192 × 1176 `, `^inputs +image_grid_thw +3 × 3: 1·8·8$`, `^inputs +video_grid_thw +1 × 3: 2·4·4$`,
		`^grpo +parameters_do_not_move +32 of 32 tensors moved in 3 steps, a weight of \S+lora_B.weight the farthest, by \d`)
	shown(t, said.Stderr, `^qwen2_5_vl: 14336 of 310208 parameters are trained, on cpu`)
}

func shown(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !regexp.MustCompile("(?m)" + line).MatchString(text) {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}

// Findings are events before the first step, equal in equal runs, and stand in summary.json; a stop ends the run
// before it has trained.
func TestPreflightFindings(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	args := tiny("schedule=[rce]", "rce.lr=1e-30", "rce.epochs=1", "report.plots=false", "checks.off=[]",
		"hydra.run.dir="+dir)
	bad := run(t, args...)
	if bad.Code != 1 || !strings.Contains(bad.Stderr, "stopped by parameters_do_not_move") {
		t.Fatalf("exit code %d\n%s", bad.Code, bad.Stderr)
	}
	lines := strings.Split(read(t, filepath.Join(dir, "metrics.jsonl")), "\n")
	for _, want := range []string{`"kind":"event"`, `"event":"parameters_do_not_move"`, `"severity":"stop"`, `"phase":"rce"`,
		`"key":"rce.lr"`, `"step":0`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("the first row lacks %s: %s", want, lines[0])
		}
	}
	if s := read(t, filepath.Join(dir, "summary.json")); !strings.Contains(s, "parameters_do_not_move") {
		t.Errorf("summary.json lacks the finding:\n%s", s)
	}
}

// compat goes on whatever the preflight finds.
func TestPreflightIsSoftForCompat(t *testing.T) {
	t.Parallel()
	rs := records()
	said := mustRun(t, small(beams(t, rs), "exp=lever_plus_compat", "rce.lr=1e-30", "checks.off=[]", "hydra.run.dir="+folder(t))...)
	if !strings.Contains(said.Stderr, "no weight moved") {
		t.Errorf("stderr: %s", said.Stderr)
	}
}
