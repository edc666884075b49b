package lvlm_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/experiments/lvlm"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
)

// published is a folder with the files of OK-VQA and of COCO's captions as they are published (scripts/okvqa_like).
func published(t *testing.T, train, val int) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "run", "../../scripts/okvqa_like", "-train", itoa(train), "-val", itoa(val), dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// exp=icl_loop goes from the published files to the comparison with a model of random weights in this process and behind each kind
// of server, also where a file of the user's names the server. task=embed is one of its stages, done once for all of them. Who is
// shown by similarity does not depend on the model, so whatever runs it has to answer the same.
func TestICLLoopThroughServers(t *testing.T) {
	t.Parallel()
	train, val, kinds := 140, 60, []string{"local", "vllm", "sglang", "completions"}
	if testing.Short() { // another server's answers come the same way: experiments/lvlm tests what is requested of it
		train, val, kinds = 20, 6, []string{"local", "sglang", "completions"}
	}
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	root, work := published(t, train, val), t.TempDir()
	weights := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	model := openModel(t, weights)
	answers, here := map[string][]string{}, 0
	for i, kind := range kinds {
		dir := filepath.Join(work, kind)
		args := []string{"exp=icl_loop", "hydra.run.dir=" + dir, "threads=1", "data=vqa", "data.root=" + root, "lvlm.path=" + weights,
			"encoder.path=../../selector/clip/testdata/quick", "icl.stages=" + filepath.Join(work, "stages"), "icl.baselines=[image,random]",
			"icl.selectors=[sft]", "icl.shots=[1]", "beams.candidates=8", "beams.width=2", "sft.epochs=1", "report.plots=false"}
		var stand *lvlm.Server
		if kind != "local" {
			stand = lvlm.Start(t, &lvlm.Server{Kind: kind, Model: model, Template: model.Template()})
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
		begun := time.Now()
		if r := runLoop(t, args...); r.Code != 0 {
			t.Fatalf("%s: exit %d: %s", kind, r.Code, r.Stderr)
		}
		t.Logf("%s: %d questions in %.0f s", kind, train+val, time.Since(begun).Seconds())
		if table := read(t, filepath.Join(dir, "comparison.csv")); strings.Count(table, "\n") != 4 {
			t.Errorf("%s:\n%s\nwant a row for each of 3 methods", kind, table)
		}
		if log := read(t, filepath.Join(dir, "run.log")); kind != "sglang" &&
			(strings.Contains(log, "embed: done in") != (i == 0) || strings.Contains(log, "embed: done before") != (i > 0)) {
			t.Errorf("%s: the embeddings are made by the first of them, once:\n%s", kind, log)
		}
		logs, err := filepath.Glob(filepath.Join(work, "stages", "beams-*", "run.log"))
		before := here
		for here = 0; len(logs) > 0; logs = logs[1:] {
			here += strings.Count(read(t, logs[0]), "10 prompts were scored by the model in lvlm.path too")
		}
		if err != nil || (here == before+1) != (kind != "local") {
			t.Errorf("%s: %d searches had prompts scored by the model's folder too, want one a server; %v", kind, here, err)
		}
		var first struct{ Folders []string }
		line, _, _ := strings.Cut(read(t, filepath.Join(dir, "selections.jsonl")), "\n")
		if err := json.Unmarshal([]byte(line), &first); err != nil {
			t.Fatal(err)
		}
		answers[kind] = strings.Split(read(t, filepath.Join(first.Folders[0], "results.json")), "},")
		others := 0
		for i, a := range answers[kind] {
			if want := answers["local"][i]; a != want {
				if others++; kind != "completions" { // it sees no pictures
					t.Errorf("%s: %s\nlocal:%s", kind, a, want)
				}
			}
		}
		if n := len(answers[kind]); n != val || others == 0 && kind == "completions" {
			t.Errorf("%s: %d answers, want %d; %d of them are others", kind, n, val, others)
		}
		if kind == "local" {
			severalModels(t, args, weights)
		}
	}
}

// severalModels asks a copy of the model too, and compares what the search finds with the right answers: what was done for the first model
// alone is not done again, and what the copy would say is known.
func severalModels(t *testing.T, args []string, weights string) {
	t.Helper()
	twin, dir := filepath.Join(t.TempDir(), "twin"), t.TempDir()
	if err := os.CopyFS(twin, os.DirFS(weights)); err != nil {
		t.Fatal(err)
	}
	args = append(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "lvlm.path=") }),
		"hydra.run.dir="+dir, "icl.models=['"+weights+"','"+twin+"']", "icl.baselines=[image,random,best_beam]")
	if r := runLoop(t, args...); r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	table := func(name string) [][]string {
		rows, err := csv.NewReader(strings.NewReader(read(t, filepath.Join(dir, name)))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	rows, budgets := table("comparison.csv"), table("budgets.csv")
	if len(rows) != 9 || rows[0][0] != "model" || rows[3][0] != weights || rows[3][1] != "best_beam" || rows[7][0] != twin {
		t.Fatalf("want 4 methods for each of two models:\n%s", rows)
	}
	for i, row := range rows[5:] {
		if row[4] != rows[1+i][4] {
			t.Errorf("the copy is %v, the model %v", row, rows[1+i])
		}
	}
	asked, of := slices.Index(budgets[0], "asked"), 0
	for _, row := range budgets[1:] {
		if strings.Contains(row[0], twin) {
			if of++; row[asked] != "0" {
				t.Errorf("the copy is asked what the model was: %v", row)
			}
		}
	}
	if of != 7 { // both searches, training, answers by four methods
		t.Errorf("budgets of the copy: %d, want 7\n%s", of, budgets)
	}
	first, second, _ := strings.Cut(read(t, filepath.Join(dir, "run.log")), "model: "+twin)
	if n := strings.Count(first, ": done in"); n != 2 || !strings.Contains(first, "best_beam_1shot: done in") ||
		strings.Contains(second, "embed: ") || !strings.Contains(second, "beams: done in") {
		t.Errorf("%d stages were done for the first model, want the search and its answers alone:\n%s\n%s", n, first, second)
	}
}

// The loop that is killed among the embeddings goes on there, and ends with those of task=embed alone.
func TestICLLoopGoesOnEmbedding(t *testing.T) {
	t.Parallel()
	root, dir, alone := published(t, 240, 10), t.TempDir(), filepath.Join(t.TempDir(), "e.safetensors")
	encoder := []string{"encoder.path=../../selector/clip/testdata/quick", "encoder.batch=1", "threads=1"}
	mustRun(t, append(encoder, "task=embed", "embed.in="+root, "embed.out="+alone, "embed.modality=both", "hydra.run.dir="+folder(t))...)
	one := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(dir, "stages", "embed-*", pattern))
		if err != nil || len(found) != 1 {
			return ""
		}
		return found[0]
	}
	weights := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	p := start(t, append(encoder, "exp=icl_loop", "hydra.run.dir="+dir, "data=vqa", "data.root="+root, "lvlm.path="+weights)...)
	p.Until(func() bool {
		info, err := os.Stat(one("embeddings.safetensors.part/*"))
		return err == nil && info.Size() > 3000
	})
	p.Signal(syscall.SIGKILL)
	p.Wait()
	p = start(t, "resume", dir)
	p.Until(func() bool { return strings.Contains(read(t, filepath.Join(dir, "run.log")), "embed: done in") })
	p.SignalGroup(syscall.SIGKILL)
	p.Wait()
	if log := read(t, one("run.log")); !strings.Contains(log, " are done already, in ") {
		t.Errorf("the stage began anew:\n%s", log)
	}
	if read(t, one("embeddings.safetensors")) != read(t, alone) {
		t.Error("other embeddings than those of task=embed")
	}
}
