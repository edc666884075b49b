package experiments_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulcrum/experiments/icl/icltest"
	"fulcrum/internal/golden"
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil/lvlm/lvlmtest"
)

// published is a folder with the files of OK-VQA and of COCO's captions as they are published (scripts/okvqa_like).
func published(t *testing.T, train, val int) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "run", "../scripts/okvqa_like", "-train", itoa(train), "-val", itoa(val), dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// exp=icl_loop goes from the published files to the comparison with a model of random weights in this process and behind each kind
// of server, also where a file of the user's names the server. task=embed is one of its stages, done once for all of them. Who is
// shown by similarity does not depend on the model, so whatever runs it has to answer the same.
func TestICLLoopThroughServers(t *testing.T) {
	train, val := 140, 60
	if testing.Short() {
		train, val = 20, 6
	}
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	root, work := published(t, train, val), t.TempDir()
	weights := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	model := icltest.Open(t, weights)
	answers := map[string]string{}
	for i, kind := range []string{"local", "vllm", "sglang", "completions"} {
		dir := filepath.Join(work, kind)
		args := []string{"exp=icl_loop", "hydra.run.dir=" + dir, "threads=1", "data=vqa", "data.root=" + root, "lvlm.path=" + weights,
			"encoder.path=../selector/clip/testdata/quick", "icl.stages=" + filepath.Join(work, "stages"), "icl.baselines=[image,random]",
			"icl.selectors=[sft]", "icl.shots=[1]", "beams.candidates=8", "beams.width=2", "sft.epochs=1", "report.plots=false"}
		var stand *lvlmtest.Server
		if kind != "local" {
			stand = lvlmtest.Start(t, &lvlmtest.Server{Kind: kind, Model: model, Template: model.Template()})
		}
		switch kind {
		case "vllm", "completions":
			args = append(args, "lvlm.backend="+kind, "lvlm.url="+stand.URL, fmt.Sprint("lvlm.images=", kind != "completions"))
		case "sglang":
			if err := os.Mkdir(filepath.Join(work, "exp"), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(work, "exp", "mine.yaml"), "# @package _global_\ndefaults:\n  - icl_loop\nlvlm: {backend: sglang, url: '"+
				stand.URL+"'}\n")
			args[0] = "exp=mine"
			args = append(args, "--config-dir="+work)
		}
		begun, p := time.Now(), start(t, args...)
		p.limit = 20 * time.Minute
		if r := p.wait(); r.code != 0 {
			t.Fatalf("%s: exit %d: %s", kind, r.code, r.stderr)
		}
		t.Logf("%s: %d questions in %.0f s", kind, train+val, time.Since(begun).Seconds())
		if table := read(t, filepath.Join(dir, "comparison.csv")); strings.Count(table, "\n") != 4 {
			t.Errorf("%s:\n%s\nwant a row for each of 3 methods", kind, table)
		}
		if log := read(t, filepath.Join(dir, "run.log")); kind != "sglang" &&
			(strings.Contains(log, "embed: done in") != (i == 0) || strings.Contains(log, "embed: done before") != (i > 0)) {
			t.Errorf("%s: the embeddings are made by the first of them, once:\n%s", kind, log)
		}
		var first struct{ Folders []string }
		line, _, _ := strings.Cut(read(t, filepath.Join(dir, "selections.jsonl")), "\n")
		if err := json.Unmarshal([]byte(line), &first); err != nil {
			t.Fatal(err)
		}
		answers[kind] = read(t, filepath.Join(first.Folders[0], "results.json"))
		if n := strings.Count(answers[kind], `"question_id"`); n != val {
			t.Errorf("%s: %d answers, want %d", kind, n, val)
		}
	}
	if answers["vllm"] != answers["local"] || answers["sglang"] != answers["local"] || answers["completions"] == answers["local"] {
		t.Errorf("the answers differ, or do not where no picture is shown:\n%s", answers)
	}
}
