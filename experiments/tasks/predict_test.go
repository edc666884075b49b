package tasks_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/runtest"
)

// prediction is a line of predictions.jsonl.
type prediction struct {
	QueryID    int64     `json:"query_id"`
	Pointer    []int64   `json:"pointer"`
	PointerPos []int64   `json:"pointer_pos"`
	LogProb    float64   `json:"logprob"`
	Scores     []float64 `json:"scores"`
}

func predictions(t *testing.T, path string) []prediction {
	t.Helper()
	var out []prediction
	for _, line := range strings.Split(strings.TrimSuffix(read(t, path), "\n"), "\n") {
		var p prediction
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%s: %v: %s", path, err, line)
		}
		out = append(out, p)
	}
	return out
}

// task=predict answers every query of a file, in its order, whatever the file records about them.
func TestPredict(t *testing.T) {
	t.Parallel()
	rs := records()
	data := beams(t, rs)
	model := folder(t)
	mustRun(t, small(data, "hydra.run.dir="+model)...)
	predict := func(t *testing.T, data []string, more ...string) []prediction {
		t.Helper()
		dir := folder(t)
		args := append([]string{"task=predict", "threads=1", "hydra.run.dir=" + dir}, data...)
		r := mustRun(t, append(args, more...)...)
		if want := "predict on beams → " + dir + "\n"; !strings.HasPrefix(r.Stdout, want) {
			t.Errorf("first line\n got %q\nwant %q", r.Stdout, want)
		}
		return predictions(t, filepath.Join(dir, "predictions.jsonl"))
	}
	best := "init.checkpoint=" + model
	greedy := predict(t, data, best)

	t.Run("one line a query, in file order, positions and ids agree", func(t *testing.T) {
		if len(greedy) != len(rs) {
			t.Fatalf("%d lines, want %d", len(greedy), len(rs))
		}
		for i, p := range greedy {
			if p.QueryID != rs[i].ID || len(p.Pointer) != 2 || len(p.PointerPos) != 2 || len(p.Scores) != 2 {
				t.Fatalf("line %d: %+v, want query %d and two picks", i+1, p, rs[i].ID)
			}
			for k, pos := range p.PointerPos {
				if rs[i].Pool[pos] != p.Pointer[k] {
					t.Errorf("line %d: candidate_pool_ids[%d] = %d, pointer says %d", i+1, pos, rs[i].Pool[pos], p.Pointer[k])
				}
			}
			if p.Pointer[0] == p.Pointer[1] || math.Abs(p.Scores[0]+p.Scores[1]-p.LogProb) > 1e-5 || p.LogProb >= 0 {
				t.Errorf("line %d: %+v", i+1, p)
			}
		}
	})
	t.Run("a checkpoint file, and the last where there is no best", func(t *testing.T) {
		target, err := os.Readlink(filepath.Join(model, "checkpoints/best.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		if got := predict(t, data, "init.checkpoint="+filepath.Join(model, "checkpoints", target)); !reflect.DeepEqual(got, greedy) {
			t.Error("the best checkpoint's file predicts something else than the run folder")
		}
	})
	t.Run("beam search", func(t *testing.T) {
		if got := predict(t, data, best, "predict.beam_size=1"); !reflect.DeepEqual(got, greedy) {
			t.Error("beam_size=1 is not greedy")
		}
		better := 0
		for i, p := range predict(t, data, best, "predict.beam_size=10") { // as wide as the pool: exact for two picks
			if p.LogProb < greedy[i].LogProb-1e-5 {
				t.Errorf("query %d: beam search finds %g, greedy %g", p.QueryID, p.LogProb, greedy[i].LogProb)
			}
			if p.LogProb > greedy[i].LogProb+1e-5 {
				better++
			}
		}
		t.Logf("beam search is better for %d of %d queries", better, len(greedy))
	})
	t.Run("records without trajectories, or with absurd ones", func(t *testing.T) {
		bare, absurd := records(), records()
		for i := range bare {
			bare[i].Candidates = nil
			absurd[i].Candidates = []map[string]any{{"pointer": []int64{-5, 99999, 3}, "beam_score": "?", "vqa_acc_score": nil}}
		}
		for name, data := range map[string][]string{"bare": beams(t, bare), "absurd": beams(t, absurd)} {
			if got := predict(t, data, best); !reflect.DeepEqual(got, greedy) {
				t.Errorf("%s records are answered differently", name)
			}
		}
	})
	t.Run("a query in its own pool is no candidate and shifts no position", func(t *testing.T) {
		own := records()
		for i := range own {
			own[i].Candidates = nil
			own[i].Pool = append(append(append([]int64{}, own[i].Pool[:3]...), own[i].ID), own[i].Pool[3:]...)
		}
		got := predict(t, beams(t, own), best)
		for i, p := range got {
			if !reflect.DeepEqual(p.Pointer, greedy[i].Pointer) {
				t.Errorf("query %d: %v, want %v", p.QueryID, p.Pointer, greedy[i].Pointer)
			}
			for k, pos := range p.PointerPos {
				if own[i].Pool[pos] != p.Pointer[k] {
					t.Errorf("query %d: candidate_pool_ids[%d] = %d, pointer says %d", p.QueryID, pos, own[i].Pool[pos], p.Pointer[k])
				}
			}
		}
	})
	t.Run("splits and held-out files", func(t *testing.T) {
		train, val := predict(t, data, best, "predict.split=train"), predict(t, data, best, "predict.split=val")
		if len(train)+len(val) != len(rs) || len(val) != 5 { // 20 % of 24
			t.Errorf("%d train and %d val queries of %d", len(train), len(val), len(rs))
		}
		other := append([]beamRecord{}, rs[5:11]...)
		file := beams(t, other)
		eval := predict(t, data, best, "predict.split=eval", "data.eval.beams="+strings.TrimPrefix(file[1], "data.beams="))
		if len(eval) != 6 {
			t.Fatalf("%d queries of data.eval.beams, want 6", len(eval))
		}
		for i, p := range eval { // 1e-5: another batch size, another order of sums
			want := greedy[5+i]
			if p.QueryID != want.QueryID || !reflect.DeepEqual(p.Pointer, want.Pointer) || math.Abs(p.LogProb-want.LogProb) > 1e-5 {
				t.Errorf("data.eval.beams: %+v, want %+v", p, want)
			}
		}
		refused(t, run(t, append(data, "task=predict", best, "predict.split=eval", "hydra.run.dir="+folder(t))...), 2, "predict.split=eval")
	})
	t.Run("shots", func(t *testing.T) {
		if got := predict(t, data, best, "selector.shot_num=4"); len(got[0].Pointer) != 4 ||
			!reflect.DeepEqual(got[0].Pointer[:2], greedy[0].Pointer) {
			t.Errorf("four shots: %+v, want two more than %v", got[0], greedy[0].Pointer)
		}
	})
	t.Run("its own folder again, another file", func(t *testing.T) {
		dir := folder(t)
		args := append([]string{"task=predict", best, "threads=1", "hydra.run.dir=" + dir}, data...)
		mustRun(t, args...)
		write(t, filepath.Join(dir, "predictions.jsonl"), "old\n")
		mustRun(t, args...)
		if got := predictions(t, filepath.Join(dir, "predictions.jsonl")); !reflect.DeepEqual(got, greedy) {
			t.Error("the second run did not replace predictions.jsonl")
		}
		out := filepath.Join(filepath.Dir(dir), "new", "out.jsonl")
		mustRun(t, append(args, "predict.out="+out)...)
		if got := predictions(t, out); !reflect.DeepEqual(got, greedy) {
			t.Error("predict.out differs")
		}
		record := func() string {
			return read(t, filepath.Join(dir, "summary.json")) + read(t, filepath.Join(dir, ".hydra/config.yaml"))
		}
		was := record()
		refused(t, run(t, append(args, "predict.beam_size=0")...), 2, "predict.beam_size")
		weights, err := filepath.EvalSymlinks(filepath.Join(strings.TrimPrefix(best, "init.checkpoint="), "checkpoints", "best.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		refused(t, run(t, append(args, "predict.out="+weights)...), 2, "this is the checkpoint, which would be overwritten")
		for _, file := range data[1:] {
			_, file, _ = strings.Cut(file, "=")
			refused(t, run(t, append(args, "predict.out="+file)...), 2, "this is what is read, "+file+", which would be overwritten")
		}
		refused(t, run(t, append(args, "init.checkpoint=missing")...), 2, "missing")
		refused(t, run(t, append(args, "hydra.output_subdir=checkpoints")...), 2, "hydra.output_subdir=checkpoints")
		if !runtest.Core {
			mustRun(t, "verify", dir)
		}
		if now := record(); now != was {
			t.Errorf("a command that was refused has changed the folder:\n%s\nbefore:\n%s", now, was)
		}
		if s := mustRun(t, "resume", dir); !strings.Contains(s.Stdout, "finished") {
			t.Errorf("resume of a finished prediction: %s", s.Stdout)
		}
		if left := leftovers(t, filepath.Dir(dir)); len(left) > 0 {
			t.Errorf("temporary files: %v", left)
		}
		refused(t, run(t, small(data, "hydra.run.dir="+dir)...), 2, "already holds a run")
	})
}

// The reference's weights do not say how many examples they choose, and of its records only the pools are looked at: nobody guesses.
func TestPredictByReference(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	args := []string{"task=predict", "init.checkpoint=" + golden.Shared(t, "parity/inits/L1/init.pt"), "data=beams", "hydra.run.dir=" + dir,
		"data.beams=" + golden.Shared(t, "parity/data/rl_k64/beams.json"), "data.embeddings=" + golden.Shared(t, "parity/data/rl_k64/emb.npy")}
	refused(t, run(t, args...), 2, "selector.shot_num: nothing says", "want selector.shot_num=N")
	mustRun(t, append(args, "selector.shot_num=2")...)
	if got := predictions(t, filepath.Join(dir, "predictions.jsonl")); len(got[0].Pointer) != 2 {
		t.Errorf("%d examples, want 2", len(got[0].Pointer))
	}
}

// The built-in data and a policy trained on it.
func TestPredictShapes(t *testing.T) {
	t.Parallel()
	model, _ := trained(t)
	dir := folder(t)
	var sizes []string
	for _, o := range tiny() {
		if strings.HasPrefix(o, "data.shapes.") {
			sizes = append(sizes, o)
		}
	}
	r := mustRun(t, append(sizes, "task=predict", "init.checkpoint="+model, "predict.split=eval", "threads=1", "hydra.run.dir="+dir)...)
	if want := "predict on synthetic shapes (not real images) → "; !strings.HasPrefix(r.Stdout, want) {
		t.Errorf("first line of %q, want %q", r.Stdout, want)
	}
	if got := predictions(t, filepath.Join(dir, "predictions.jsonl")); len(got) != 16 {
		t.Errorf("%d predictions, want 16", len(got))
	}
}
