//go:build !core

package tasks_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// iclRecords writes n records over the fixtures' pictures and returns the overrides that read them with the fixtures' model.
func iclRecords(t *testing.T, n int) []string {
	t.Helper()
	dir := filepath.Dir(folder(t))
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"id": %d, "image": %q, "question": "which of %d?", "answers": ["word %d", "word %d", "no"], "image_id": %d}`+"\n",
			500+i, golden.Shared(t, "qwen2_5_vl", "images", fmt.Sprintf("img%d.png", i%4)), i, i%3, i%3, i)
	}
	path := filepath.Join(dir, "records.jsonl")
	write(t, path, lines.String())
	return []string{"threads=1", "data.records_icl=" + path, "lvlm.store=" + filepath.Join(dir, "store"),
		"lvlm.path=" + filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))}
}

// The chain from questions to a selector: beams by a frozen model, a search that asks nothing again, jobs that share a search, and
// training whose validation and rollouts the model scores.
func TestBeams(t *testing.T) {
	t.Parallel()
	const rows = 60 // of the table that beamText writes
	data := iclRecords(t, rows)
	search := func(more ...string) (dir string, said string) {
		dir = folder(t)
		args := append([]string{"task=beams", "beams.candidates=6", "beams.width=3", "beams.queries=10", "beams.order=right",
			"hydra.run.dir=" + dir}, data...)
		r := mustRun(t, append(args, more...)...)
		return dir, r.Stdout + read(t, filepath.Join(dir, "run.log"))
	}
	jobs := []string{}
	for job := range 2 {
		dir, said := search("beams.jobs=2", fmt.Sprintf("beams.job=%d", job))
		if want := "plan: 5 queries, 110 scorings"; !strings.Contains(said, want) { // 5 · (1 + 6 + 3·5)
			t.Errorf("%q lacks %q", said, want)
		}
		jobs = append(jobs, read(t, filepath.Join(dir, "beams.json")))
	}
	whole, said := search()
	if !strings.Contains(said, "10 of 10 queries, 0 asked, 220 known") {
		t.Errorf("the whole search asked again: %s", said)
	}
	legacy := read(t, filepath.Join(whole, "beams.json"))
	for line := bufio.NewScanner(strings.NewReader(jobs[0] + jobs[1])); line.Scan(); {
		if text := strings.TrimRight(line.Text(), ",}\n"); !strings.HasPrefix(text, `{"_meta"`) && !strings.Contains(legacy, text) {
			t.Errorf("the whole search lacks %s", text)
		}
	}

	rl := filepath.Join(whole, "records.json")
	train := folder(t)
	args := small(append(beamText(t, read(t, rl)), data...), "data.reward.mode=vqa_gt_prob", "lvlm.reward=likelihood",
		"schedule=[rce,grpo_online]", "grpo_online.epochs=1", "grpo_online.group_size=2", "hydra.run.dir="+train)
	mustRun(t, args...)
	type row struct {
		Kind, Policy string
		Reward       *float64
		ValReward    *float64 `json:"val_reward"`
	}
	best, epochs := math.NaN(), 0
	for line := bufio.NewScanner(strings.NewReader(read(t, filepath.Join(train, "metrics.jsonl")))); line.Scan(); {
		var r row
		if err := json.Unmarshal(line.Bytes(), &r); err != nil {
			continue // a step with a number as text
		}
		if r.Kind == "eval" && r.Policy == "best_beam" {
			best = *r.Reward
		}
		if r.Kind == "epoch" && r.ValReward != nil && *r.ValReward > 0 {
			epochs++
		}
	}
	// What the model says of the best recorded beams now is what it said of them in the search.
	var file map[string]struct {
		Candidates []struct {
			Prob float64 `json:"vqa_gt_prob"`
		} `json:"pointer_candidates"`
	}
	if err := json.Unmarshal([]byte(read(t, rl)), &file); err != nil {
		t.Fatal(err)
	}
	top := map[string]bool{}
	for _, q := range file {
		most := 0.0
		for _, c := range q.Candidates {
			most = max(most, c.Prob)
		}
		top[fmt.Sprintf("%.9e", most)] = true
	}
	if epochs != 2 || math.IsNaN(best) {
		t.Fatalf("%d epochs with val_reward, best_beam %v", epochs, best)
	}
	found := false
	for a := range top { // two validation queries: the mean of some two
		for b := range top {
			var x, y float64
			fmt.Sscan(a, &x)
			fmt.Sscan(b, &y)
			found = found || math.Abs((x+y)/2-best) < 1e-8*best
		}
	}
	if !found {
		t.Errorf("best_beam has %v, which is the mean of no two recorded beams %v", best, top)
	}
	stopped := folder(t)
	ownStore := slices.Delete(slices.Clone(data), 2, 3)
	p := start(t, append([]string{"task=beams", "beams.candidates=40", "hydra.run.dir=" + stopped}, ownStore...)...)
	p.Until(func() bool { return strings.Contains(p.Stderr.String(), "plan: ") })
	p.Signal(syscall.SIGINT)
	if r := p.Wait(); r.Code != 130 || !strings.Contains(r.Stderr, "resume "+stopped) {
		t.Errorf("interrupted: exit code %d, %q", r.Code, r.Stderr)
	}
	records := strings.TrimPrefix(data[1], "data.records_icl=")
	cut, picture := filepath.Join(stopped, "cut.jsonl"), golden.Shared(t, "qwen2_5_vl", "images", "img0.png")
	write(t, filepath.Join(stopped, "cut.png"), read(t, picture)[:60])
	write(t, cut, strings.ReplaceAll(read(t, records), picture, "cut.png"))
	for over, want := range map[string]string{"beams.out=" + records: "this is data.records_icl, which would be overwritten",
		"data.records_icl=" + rl: "records.json", "lvlm.path=/nowhere": "lvlm.path=/nowhere: no such folder",
		"lvlm.template=/nowhere": "lvlm.template=/nowhere: no such file", "data.records_icl=" + cut: "cut.jsonl:1 (id 500)",
		"beams.sampler=text": "beams.text_embeddings: beams.sampler=text needs a table"} {
		r := run(t, append(append([]string{"task=beams", "beams.candidates=6", "hydra.run.dir=" + folder(t)}, data...), over)...)
		if r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", over, r.Code, r.Stderr, want)
		}
	}
	r := run(t, append(args[:len(args)-1], "data.reader=x.npz", "hydra.run.dir="+folder(t))...)
	if r.Code == 0 {
		t.Error("a reader and lvlm.reward at once passed")
	}
	mute := filepath.Join(stopped, "mute.jsonl")
	query := slices.Min(slices.Collect(maps.Keys(file)))
	write(t, mute, strings.ReplaceAll(read(t, records), `"which of `+query+`?", "answers": `, `"which?", "answers": [], "was": `))
	r = run(t, append(args[:len(args)-1], "data.records_icl="+mute, "hydra.run.dir="+folder(t))...)
	if want := " has no answer to show or to judge by: leave it out"; r.Code != 2 || !strings.Contains(r.Stderr, want) {
		t.Errorf("a candidate without an answer: exit code %d, %q, want %q", r.Code, r.Stderr, want)
	}
}
