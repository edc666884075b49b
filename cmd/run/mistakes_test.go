package main_test

import (
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

// mistake is something that a user types or has in a file, and what the program must say of it.
type mistake struct {
	name string
	mark int // what a reader gave the message: 5 names file, line or key, the nearest right name, and what to do
	code int
	args []string
	env  []string // besides the test's own
}

// The marks document a review of the messages: reword one and read it again as a new user would.
const (
	lowestMark = 4
	meanMark   = 4.6
)

// Each of 77 mistakes of new users is named, with what to do about it, and leaves no folder behind. The messages stand
// in testdata/mistakes.txt, with their marks, for reading.
func TestMistakes(t *testing.T) {
	t.Parallel()
	tryMistakes(t, mistakes(t), 77, "testdata/mistakes.txt")
}

// tryMistakes types each of so many mistakes and holds what the program says to a file.
func tryMistakes(t *testing.T, all []mistake, want int, file string) {
	t.Helper()
	if len(all) != want {
		t.Errorf("%d mistakes, want %d", len(all), want)
	}
	sum, said := 0, make([]string, len(all))
	for i, m := range all {
		sum += m.mark
		if m.mark < lowestMark {
			t.Errorf("%s: mark %d: no message may be worse than %d", m.name, m.mark, lowestMark)
		}
		t.Run(m.name, func(t *testing.T) {
			dir, args := folder(t), m.args
			line := strings.Join(args, " ")
			isRun := strings.Contains(line, "=") && !strings.Contains(line, "hydra.run.dir=") && args[0] != "resume"
			if isRun {
				args = append(append([]string{}, args...), "hydra.run.dir="+dir)
			}
			r := startWith(t, filepath.Dir(dir), m.env, args...).Wait()
			if r.Code != m.code {
				t.Errorf("exit code %d, want %d:\n%s", r.Code, m.code, r.Stderr)
			}
			said[i] = fmt.Sprintf("[%d] %s (exit code %d)\n%s\n", m.mark, m.name, r.Code, message(r))
			if name := goName.FindString(r.Stderr); name != "" {
				t.Errorf("the name %s of Go's means nothing to a user:\n%s", name, r.Stderr)
			}
			if begun := strings.Contains(r.Stderr, "preflight: "); r.Code != 0 && isRun && !begun && exists(dir) {
				t.Errorf("a run that was refused before it began leaves its folder")
			}
		})
	}
	if mean := float64(sum) / float64(len(all)); mean < meanMark {
		t.Errorf("the mean of the marks is %.2f, want %.2f", mean, meanMark)
	}
	if !slices.Contains(said, "") { // all were tried
		golden.File(t, file, []byte(strings.Join(said, "\n")))
	}
}

// message is the error that a program ended with, else what it printed, without the folders of this test.
func message(r result) string {
	text := r.Stdout
	if _, fault, ok := strings.Cut("\n"+r.Stderr, "\nrun: "); ok {
		text = fault
	}
	text = strings.ReplaceAll(text, filepath.Join(shared(), "trained"), "RUN")
	text = regexp.MustCompile(regexp.QuoteMeta(shared())+`/test\d+`).ReplaceAllString(text, "DIR")
	text = regexp.MustCompile(regexp.QuoteMeta(os.TempDir())+`/Test\w*Mistakes\d*/\d+`).ReplaceAllString(text, "DIR")
	text = regexp.MustCompile(`talks\d+`).ReplaceAllString(text, "talks")
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// goName finds what only a programmer of ours knows.
var goName = regexp.MustCompile(`Go (struct|value)|cannot unmarshal|\*?json\.[A-Z]\w+|map\[string|interface ?\{|of type (u?int|float)\d*\b`)

func mistakes(t *testing.T) []mistake {
	good := beams(t, records())
	emb, beamPath := good[2], strings.TrimPrefix(good[1], "data.beams=")
	rl := func(change func(rs []beamRecord)) []string {
		rs := records()
		change(rs)
		return small(beams(t, rs))
	}
	raw := func(text string) []string { return small(beamText(t, text)) }
	edited := func(old, new string) []string { return raw(strings.ReplaceAll(beamLines(t, records()), old, new)) }
	table := func(path string) []string { return small([]string{good[0], good[1], "data.embeddings=" + path}) }
	rows := func(n, dim int) [][]float32 {
		out := make([][]float32, n)
		for i := range out {
			for k := range dim {
				out[i] = append(out[i], float32(math.Sin(float64(i*dim+k+1))))
			}
		}
		return out
	}
	npy := func(rows [][]float32) []string {
		return table(strings.TrimPrefix(beamFiles(t, "{}", rows)[2], "data.embeddings="))
	}
	vlDir := filepath.Join(filepath.Dir(beamPath), "vl")
	if err := os.MkdirAll(vlDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range talkCount {
		writePicture(t, filepath.Join(vlDir, fmt.Sprintf("%d.png", i)), color.White)
	}
	write(t, filepath.Join(vlDir, "broken.png"), half(read(t, filepath.Join(vlDir, "0.png"))))
	talks := func(change func(rs []map[string]any)) string {
		rs := talkRecords()
		change(rs)
		return talkFile(t, vlDir, rs)
	}
	vl := func(path string, more ...string) []string {
		return append([]string{"policy=qwen2_5_vl", "grpo=tokens", "grpo/kl=k3", "data=conversations", "data.conversations.train=" + path,
			"threads=1", "report.plots=false"}, more...)
	}
	goodTalks := talks(func([]map[string]any) {})
	run0, _ := trained(t)
	return []mistake{
		{"a row number for an id", 5, 1, rl(func(rs []beamRecord) { rs[3].Pool[4] = fixtureRows }), nil},
		{"candidates and candidate_ids", 5, 1, raw(strings.NewReplacer(`"pointer_candidates"`, `"candidates"`,
			`"candidate_pool_ids"`, `"candidate_ids"`).Replace(beamLines(t, records()))), nil},
		{"only a reward in trajectories", 4, 1, rl(func(rs []beamRecord) {
			for _, r := range rs {
				for i, c := range r.Candidates {
					r.Candidates[i] = map[string]any{"pointer": c["pointer"], "reward": c["beam_score"]}
				}
			}
		}), nil},
		{"vqa_accuracy for vqa_acc_score", 4, 1, edited(`"vqa_acc_score"`, `"vqa_accuracy"`), nil},
		{"a list of queries", 5, 1, raw(listOfQueries(t)), nil},
		{"query keys with a letter", 5, 1, raw(regexp.MustCompile(`"(\d+)": \{`).ReplaceAllString(beamLines(t, records()),
			`"q$1": {`)), nil},
		{"five beams and four scores", 5, 1, raw(legacyBeams(func(id int, beams [][]int, scores []float64) ([][]int, []float64) {
			return beams, scores[:4]
		})), nil},
		{"beams without the query's id", 5, 1, raw(legacyBeams(func(id int, beams [][]int, scores []float64) ([][]int, []float64) {
			for i := range beams {
				beams[i] = beams[i][:2]
			}
			return beams, scores
		})), nil},
		{"truncated JSON", 5, 1, raw(half(beamLines(t, records()))), nil},
		{"ids and scores for id_list and score_list", 5, 1, raw(strings.
			NewReplacer("id_list", "ids", "score_list", "scores").Replace(legacyBeams(nil))), nil},
		{"a reward that is NaN", 5, 1, edited(`"vqa_gt_prob":0.`, `"vqa_gt_prob":NaN,"x":0.`), nil},
		{"query ids shifted", 5, 1, raw(regexp.MustCompile(`(?m)^"(\d+)": \{`).
			ReplaceAllStringFunc(beamLines(t, records()), func(s string) string {
				var n int
				fmt.Sscanf(s, `"%d"`, &n)
				return fmt.Sprintf("\"%d\": {", (n+1)%fixtureRows)
			})), nil},
		{"a score as text", 5, 1, edited(`"vqa_gt_prob":0.`, `"vqa_gt_prob":"0.5","x":0.`), nil},
		{"a missing file", 4, 2, small([]string{"data=beams", "data.beams=nonexist.json", emb}), nil},
		{"a transposed table", 5, 1, npy(rows(24, fixtureRows)), nil},
		{"two matrices in a .pt", 5, 1, table(ptFile(t, dictOf("image", matrix(60, 8), "text", matrix(60, 8)))), nil},
		{"a table that is too short", 5, 1, npy(rows(40, 24)), nil},
		{"a list of tensors", 5, 1, table(ptFile(t, &tensorfile.List{Items: []any{vector(8), vector(8), vector(8)}})), nil},
		{"a dict from id to row", 5, 1, table(ptFile(t, dictOf("0", vector(8), "1", vector(8), "2", vector(8)))), nil},
		{"a row with NaN", 5, 1, npy(append(rows(12, 4), []float32{0, float32(math.NaN()), 0, 0})), nil},
		{"a table of three dimensions", 5, 1, table(ptFile(t, tensorfile.FromFloat32s("", []int{4, 2, 2}, make([]float32, 16)))), nil},
		{"a .npy of objects", 5, 1, table(npyFile(t, "|O", "(3,)", 24)), nil},
		{"a table of integers", 5, 1, table(npyFile(t, "<i8", "(3, 2)", 48)), nil},
		{"a table in JSON", 5, 1, table(beamPath), nil},
		{"no data.embeddings", 5, 2, small(good[:2]), nil},
		{"one candidate a query", 4, 1, append(rl(func(rs []beamRecord) {
			for i := range rs {
				rs[i].Candidates = rs[i].Candidates[:1]
			}
		}), "checks.off=[]"), nil},
		{"positions in pointer", 5, 1, rl(func(rs []beamRecord) {
			for _, r := range rs {
				for i, c := range r.Candidates {
					c["pointer"] = []int{i, i + 1}
				}
			}
		}), nil},
		{"candidates of different lengths", 5, 1, rl(func(rs []beamRecord) {
			c := rs[3].Candidates[1]
			c["pointer"] = c["pointer"].([]int64)[:1]
		}), nil},
		{"a picture that is missing", 5, 1, vl(talks(func(rs []map[string]any) { rs[3]["image"] = "nowhere.png" })), nil},
		{"a picture without a tag", 5, 1, vl(talks(func(rs []map[string]any) { say(rs[3], 0, "value", "What is it?") })), nil},
		{"two tags for one picture", 5, 1, vl(talks(func(rs []map[string]any) {
			say(rs[3], 0, "value",
				"<image><image>What is it?")
		})), nil},
		{"a speaker that there is not", 5, 1, vl(talks(func(rs []map[string]any) { say(rs[3], 0, "from", "humn") })), nil},
		{"conversation for conversations", 5, 1, vl(talks(func(rs []map[string]any) {
			rename(rs[3], "conversations",
				"conversation")
		})), nil},
		{"no answer", 4, 2, vl(talks(func(rs []map[string]any) {
			for _, r := range rs[:6] {
				r["conversations"] = r["conversations"].([]any)[:1]
			}
		}), "schedule=[sft]"), nil},
		{"turns swapped", 4, 2, vl(talks(func(rs []map[string]any) {
			for _, r := range rs[:6] {
				say(r, 0, "from", "gpt")
				say(r, 1, "from", "human")
				say(r, 0, "value", "a cat")
				say(r, 1, "value", "<image>What is it?")
			}
		}), "schedule=[sft]"), nil},
		{"a number for a text", 5, 1, vl(talks(func(rs []map[string]any) { say(rs[3], 1, "value", 7) })), nil},
		{"img for image", 5, 1, vl(talks(func(rs []map[string]any) { rename(rs[3], "image", "img") })), nil},
		{"a broken picture", 5, 1, vl(talks(func(rs []map[string]any) { rs[3]["image"] = "broken.png" })), nil},
		{"a picture by URL", 5, 1, vl(talks(func(rs []map[string]any) { rs[3]["image"] = "https://example.org/a.png" })), nil},
		{"records inside an object", 5, 1, vl(wrapped(t, vlDir)), nil},
		{"instruction and output", 5, 1, vl(talks(func(rs []map[string]any) {
			delete(rs[3], "conversations")
			rs[3]["instruction"], rs[3]["output"] = "<image>What is it?", "a cat"
		})), nil},
		{"a trailing comma", 5, 1, vl(rewritten(t, vlDir, func(text string) string { return strings.TrimSuffix(text, "]") + ",]" })), nil},
		{"a model's name for its folder", 5, 2, vl(goodTalks, "vl.path=Qwen/Qwen2.5-VL-3B-Instruct"), nil},
		{"an empty model folder", 5, 2, vl(goodTalks, "vl.path="+t.TempDir()), nil},
		{"PEFT's name of the rank", 5, 2, vl(goodTalks, "vl.lora.r=16"), nil},
		{"a target module that there is not", 5, 1, vl(goodTalks, "schedule=[sft]", "sft.epochs=1",
			"vl.path="+tinyModel(t), "vl.lora.target_modules=[q_prj]"), nil},
		{"fp16", 5, 2, vl(goodTalks, "vl.dtype=fp16"), nil},
		{"a bare lr", 5, 2, tiny("lr=1e-5"), nil},
		{"a token policy without grpo=tokens", 5, 2, []string{"policy=qwen2_5_vl", "data=conversations",
			"data.conversations.train=" + goodTalks}, nil},
		{"inspection of conversations", 5, 0, []string{"data", "inspect", goodTalks}, nil},
		{"a JSON list to generate", 5, 2, []string{"policy=qwen2_5_vl", "task=generate", "generate.in=" + goodTalks,
			"vl.path=" + tinyModel(t), "vl.dtype=float32"}, nil},
		{"a letter too many in a key", 5, 2, tiny("grpo.kl.betta=0.1"), nil},
		{"an experiment that there is not", 5, 2, []string{"exp=okvqa_v33"}, nil},
		{"PPO's name of the clip range", 5, 2, tiny("grpo.clip_epsilon=0.2"), nil},
		{"a seed that is no number", 5, 2, tiny("seed=abc"), nil},
		{"a rate that is no number", 5, 2, tiny("rce.lr=fast"), nil},
		{"a negative rate", 5, 2, tiny("rce.lr=-1"), nil},
		{"a phase that there is not", 5, 2, tiny("schedule=[rce,grop]"), nil},
		{"a bare epochs", 5, 2, tiny("epochs=3"), nil},
		{"an override without =", 5, 2, []string{"exp", "okvqa_v3"}, nil},
		{"an override as a flag", 5, 2, []string{"exp=okvqa_v3", "--seed", "3"}, nil},
		{"device=gpu", 5, 2, tiny("device=gpu"), nil},
		{"cuda without CUDA", 5, 2, tiny("device=cuda"), []string{"CUDA_VISIBLE_DEVICES="}},
		{"several values without --multirun", 5, 2, tiny("seed=1,2"), nil},
		{"a range without --multirun", 5, 2, tiny("seed=range(3)"), nil},
		{"a phase for a list of phases", 5, 2, tiny("schedule=rce"), nil},
		{"the start of a policy's name", 5, 2, []string{"policy=qwen"}, nil},
		{"resume of nothing", 5, 2, []string{"resume", "nope"}, nil},
		{"a comparison with nothing", 5, 2, []string{"report", run0, "nope"}, nil},
		{"a report in a format that there is not", 5, 2, []string{"report", run0, "--format", "csv"}, nil},
		{"verification of nothing", 5, 2, []string{"verify", "nope"}, nil},
		{"an export without its format", 5, 2, []string{"checkpoint", "export", run0, "x.pt"}, nil},
		{"an occupied run folder", 5, 2, tiny("hydra.run.dir=" + run0), nil},
		{"a checkpoint that is missing", 5, 2, tiny("init.checkpoint=outputs/nope"), nil},
		{"a checkpoint that contradicts", 5, 2, tiny("init.checkpoint="+run0, "selector=v3"), nil},
		{"a band upside down", 5, 2, tiny("grpo.kl.target_min=0.2", "grpo.kl.target_max=0.1"), nil},
		{"Slurm without Slurm", 5, 2, append([]string{"-m", "hydra/launcher=slurm"}, tiny("seed=1,2")...),
			[]string{"PATH=" + slurmWithout(t)}},
	}
}

// tinyModel is the folder of a small Qwen2.5-VL.
func tinyModel(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../internal/testkit/golden/testdata/qwen2_5_vl/tiny_tied")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// listOfQueries is a beam file as a list.
func listOfQueries(t *testing.T) string {
	text, err := json.Marshal(records())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// legacyBeams is a legacy beam file of queries with five beams, after change (nil: none) of the fourth.
func legacyBeams(change func(id int, beams [][]int, scores []float64) ([][]int, []float64)) string {
	queries := map[string]any{}
	for id := range 20 {
		var beams [][]int
		var scores []float64
		for b := range 5 {
			beams, scores = append(beams, []int{20 + (id+b)%40, 20 + (id+b+7)%40, id}), append(scores, 1/float64(b+1))
		}
		if change != nil && id == 3 {
			beams, scores = change(id, beams, scores)
		}
		queries[fmt.Sprint(id)] = map[string]any{"id_list": beams, "score_list": scores}
	}
	text, _ := json.Marshal(queries)
	return string(text)
}

// talkCount is how many records of conversations the tests have.
const talkCount = 24

// talkRecords are records that ask about a picture each.
func talkRecords() []map[string]any {
	var out []map[string]any
	for i := range talkCount {
		out = append(out, map[string]any{"id": fmt.Sprintf("r%d", i), "image": fmt.Sprintf("%d.png", i), "conversations": []any{
			map[string]any{"from": "human", "value": "<image>What is it?"}, map[string]any{"from": "gpt", "value": "a cat"}}})
	}
	return out
}

// say sets a field of a turn.
func say(record map[string]any, turn int, key string, value any) {
	record["conversations"].([]any)[turn].(map[string]any)[key] = value
}

func rename(record map[string]any, from, to string) {
	record[to] = record[from]
	delete(record, from)
}

// talkFile writes records of conversations as a JSON list into dir.
func talkFile(t *testing.T, dir string, records any) string {
	t.Helper()
	text, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(dir, "talks*.json")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	write(t, f.Name(), string(text))
	return f.Name()
}

func wrapped(t *testing.T, dir string) string {
	return talkFile(t, dir, map[string]any{"data": talkRecords()})
}

func rewritten(t *testing.T, dir string, change func(string) string) string {
	path := talkFile(t, dir, talkRecords())
	write(t, path, change(read(t, path)))
	return path
}

func matrix(rows, dim int) tensorfile.Tensor {
	return tensorfile.FromFloat32s("", []int{rows, dim}, make([]float32, rows*dim))
}

func vector(dim int) tensorfile.Tensor {
	return tensorfile.FromFloat32s("", []int{dim}, make([]float32, dim))
}

// dictOf makes a dict of keys and values in turn.
func dictOf(pairs ...any) *tensorfile.Dict {
	d := tensorfile.NewDict()
	for i := 0; i < len(pairs); i += 2 {
		d.Set(pairs[i], pairs[i+1])
	}
	return d
}

func ptFile(t *testing.T, value any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "emb.pt")
	if err := tensorfile.WritePT(path, value); err != nil {
		t.Fatal(err)
	}
	return path
}

// npyFile writes zeros under a header.
func npyFile(t *testing.T, descr, shape string, bytes int) string {
	t.Helper()
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	header += strings.Repeat(" ", 63-(len(header)+10)%64) + "\n"
	path := filepath.Join(t.TempDir(), "emb.npy")
	write(t, path, "\x93NUMPY\x01\x00"+string([]byte{byte(len(header)), byte(len(header) >> 8)})+header+strings.Repeat("\x00", bytes))
	return path
}

// slurmWithout is a folder with Slurm's commands, which know no cluster.
func slurmWithout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol"} {
		script := "#!/bin/sh\necho '" + name + ": error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host' >&2\n" +
			"echo '" + name + ": fatal: Could not establish a configuration source' >&2\nexit 1\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
