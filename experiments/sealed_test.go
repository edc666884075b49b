package experiments_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/runtest"
)

// rewardTable writes a reward table of queries, whose pools of one size stand one after the other.
func rewardTable(t *testing.T, path string, queries, pools []int64) {
	t.Helper()
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	add := func(name, kind string, shape []int, values any) {
		dims := ""
		for _, n := range shape {
			dims += fmt.Sprintf("%d,", n)
		}
		head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kind, dims)
		head += strings.Repeat(" ", 63-(len(head)+10)%64) + "\n"
		w, err := z.Create(name + ".npy")
		if err == nil {
			_, err = fmt.Fprintf(w, "\x93NUMPY\x01\x00%c%c%s", len(head)&0xff, len(head)>>8, head)
		}
		if err == nil {
			err = binary.Write(w, binary.LittleEndian, values)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n, k := len(queries), len(pools)/len(queries)
	floats := func(size int) []float32 {
		out := make([]float32, size)
		for i := range out {
			out[i] = float32(i*7%10) / 10
		}
		return out
	}
	add("query_id", "<i8", []int{n}, queries)
	add("pool", "<i8", []int{n, k}, pools)
	add("score", "<f4", []int{n, k}, floats(n*k))
	add("demo_acc", "<f4", []int{n, k}, floats(n*k))
	add("prior_score", "<f4", []int{n}, floats(n))
	add("prior_expected_acc", "<f4", []int{n}, floats(n))
	add("prior_top_answer", "<U1", []int{n}, slices.Repeat([]int32{'a'}, n))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Sealed questions leave the training pools, nothing scores them but one opening, and the report keeps the claim.
func TestSealedQuestions(t *testing.T) {
	t.Parallel()
	if runtest.Core {
		t.Skip("open-test is of an annex")
	}
	rs := records()
	asked := map[int64]bool{}
	for _, r := range rs {
		asked[r.ID] = true
	}
	var free []int64
	for row := range int64(fixtureRows) {
		if !asked[row] {
			free = append(free, row)
		}
	}
	home, far := t.TempDir(), t.TempDir()
	sealed, mine, ledger := filepath.Join(far, "sealed.npz"), filepath.Join(home, "a"), filepath.Join(home, "mine.jsonl")
	runtest.Write(t, filepath.Join(far, "items_sealed.jsonl"), fmt.Sprintf(`{"idx": %d, "question": "q", "image_id": 7}
{"idx": %d, "question": "r", "image_id": 7}
`, free[0], free[20]))
	data := beams(t, rs)
	rewardTable(t, sealed, append(slices.Clone(free[:8]), rs[0].ID), slices.Repeat(free[8:28], 9))
	refused(t, run(t, small(data, "data.sealed="+sealed, "hydra.run.dir="+mine)...), 1,
		fmt.Sprintf("its query %d is in the ", rs[0].ID), " set of data.name=beams too: want questions that nothing else scores")
	rewardTable(t, sealed, free[:8], slices.Repeat(free[8:28], 8))
	refused(t, run(t, small(data, "data.sealed="+sealed, "data.pool.held_out=keep", "hydra.run.dir="+mine)...), 1,
		"its questions would stay in the pools of training queries: want data.pool.held_out=drop")
	got := mustRun(t, small(data, "evidence.ledger="+ledger, "data.sealed="+sealed, "hydra.run.dir="+mine)...)
	if text := read(t, filepath.Join(mine, "run.log")); !strings.Contains(text, "held-out questions (13) and others about their images (1) ") {
		t.Errorf("8 sealed and 5 validation questions, and one about the image of a sealed one, should leave the training pools:\n%s%s", text,
			got.Stdout)
	}
	if strings.Contains(read(t, filepath.Join(mine, "evals.jsonl")), "sealed") || exists(ledger) {
		t.Error("training has looked at sealed questions")
	}
	other, half := copied(t, mine), copied(t, mine)

	refused(t, run(t, "open-test", mine), 2, "--claim: want what the scores are to show")
	const claim = "GRPO beats similarity"
	rewardTable(t, sealed, free[:7], slices.Repeat(free[8:28], 7))
	refused(t, run(t, "open-test", mine, "--claim", claim), 2, "it has other questions than when the run trained")
	rewardTable(t, sealed, free[:8], slices.Repeat(free[8:28], 8))
	mustRun(t, "open-test", mine, "--claim", claim)
	report := read(t, filepath.Join(mine, "report.md"))
	for _, want := range []string{"**Sealed questions**, opened once, at ", "The claim was: " + claim + ".",
		"This was look 1 at these questions", "### Reward on sealed questions, held out (8 queries, 2 shots)"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	if !strings.Contains(read(t, filepath.Join(mine, "summary.json")), claim) {
		t.Error("the summary lacks the claim")
	}
	verifies(t, mine)
	mustRun(t, "report", mine)
	before, _, _ := strings.Cut(report, "## Results")
	if again := read(t, filepath.Join(mine, "report.md")); !strings.HasPrefix(again, before) {
		t.Errorf("a rebuilt report says otherwise:\n%s\nwant\n%s", again, before)
	}
	for _, again := range []string{mine, other} {
		refused(t, run(t, "open-test", again, "--claim", "SFT too"), 2, "with the claim \""+claim+"\"")
	}
	if exists(filepath.Join(other, "opened.json")) {
		t.Error("a run that was refused has scores")
	}
	// Killed behind the scores: the same claim goes on with them.
	for _, name := range []string{"opened.json", "looks.json"} {
		runtest.Write(t, filepath.Join(half, name), read(t, filepath.Join(mine, name)))
	}
	refused(t, run(t, "open-test", half, "--claim", "SFT too"), 2, "with the claim \""+claim+"\"")
	mustRun(t, "open-test", half, "--claim", claim)
	verifies(t, half)
	if n := strings.Count(read(t, ledger), "\n"); n != 1 {
		t.Errorf("%d lines in the ledger, want 1", n)
	}

	// Where a table scores the validation queries too, these have baselines.
	reader, scored := filepath.Join(far, "reader.npz"), filepath.Join(home, "b")
	var ids, pools []int64
	for _, r := range rs {
		ids, pools = append(ids, r.ID), append(pools, r.Pool...)
	}
	rewardTable(t, reader, ids, pools)
	mustRun(t, small(data, "evidence.ledger="+ledger+"2", "data.sealed="+sealed, "data.reader="+reader, "hydra.run.dir="+scored)...)
	mustRun(t, "open-test", scored, "--claim", claim)
	verifies(t, scored)
}
