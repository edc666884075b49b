package lvlm_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// TestICLText runs exp=icl_text in small, with random weights: records without pictures go through embeddings, beams, selectors and
// answers, and each method has its row.
func TestICLText(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for i := range 18 {
		split := "train"
		if i >= 12 {
			split = "val"
		}
		if i == 13 || i == 16 { // nobody knows what is right
			fmt.Fprintf(&lines, `{"id": %d, "question": "Do job %d for: nobody", "split": "val"}`+"\n", i, i%3)
			continue
		}
		fmt.Fprintf(&lines, `{"id": %d, "question": "Do job %d for: %d", "answers": ["%d", "%[4]d", "%[4]d", "%[4]d"], "split": "%s"}`+"\n",
			i, i%3, i, 7*i, split)
	}
	dir := t.TempDir()
	records, whole := filepath.Join(dir, "records.jsonl"), filepath.Join(dir, "whole")
	write(t, records, lines.String())
	reader := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	r := runLoop(t, "exp=icl_text", "data.records_icl="+records, "lvlm.path="+reader, "encoder.path="+reader, "hydra.run.dir="+whole,
		"threads=1", "beams.queries=4", "beams.candidates=6", "beams.shots=2", "icl.shots=[1,2]",
		"icl.baselines=[text,mmr,none,best_beam,oracle,'shuffled:random']",
		"icl.selectors=[rce+grpo,'shuffled:rce+grpo']", "rce.epochs=1", "grpo.epochs=1", "lvlm.max_new_tokens=3", "report.plots=false")
	if r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	table := strings.Split(read(t, filepath.Join(whole, "comparison.csv")), "\n")
	if len(table) != 18 || !strings.HasSuffix(table[0], ",copied (%)") {
		t.Fatalf("comparison:\n%s\nwant a row for each of 8 methods and 2 numbers of examples", strings.Join(table, "\n"))
	}
	for i, method := range []string{"text", "mmr", "none", "best_beam", "oracle", "shuffled:random"} {
		row := strings.Split(table[i+1], ",")
		if row[0] != method || (row[len(row)-1] == "") != (method == "none") {
			t.Errorf("row %q, want %s and, of methods with examples, its copies", table[i+1], method)
		}
	}
	log := read(t, filepath.Join(whole, "run.log"))
	if n := strings.Count(log, "rce_grpo_0: done in"); n != 1 || !strings.Contains(log, "rce_grpo_0: done before") {
		t.Errorf("the selector of rce+grpo was trained %d times, want once for both kinds of answers:\n%s", n, log)
	}
	if report := read(t, filepath.Join(whole, "report.md")); !strings.Contains(report, "on 4 held-out questions") {
		t.Errorf("beams.queries is the number of held-out questions too, and the report says:\n%s", report)
	}
}
