package experiments_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// talks writes n conversations about texts; those that without says lack their answer.
func talks(t *testing.T, n int, without func(i int) bool) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		answer := fmt.Sprintf(`,{"from":"gpt","value":"it is %d"}`, i%5)
		if without(i) {
			answer = ""
		}
		fmt.Fprintf(&b, `{"id":%d,"conversations":[{"from":"human","value":"say %d"}%s],"completion":[]}`+"\n", i, i, answer)
	}
	path := filepath.Join(t.TempDir(), "talks.jsonl")
	write(t, path, b.String())
	return path
}

// imitate is an epoch of sft of a very small encoder-decoder from random weights.
func imitate(data string, more ...string) []string {
	return with([]string{"policy=seq2seq", "data=conversations", "data.conversations.train=" + data, "schedule=[sft]",
		"sft.epochs=1", "sft.lr=1e-3", "threads=1",
		"seq2seq.scratch.d_model=16", "seq2seq.tune_all=true", "seq2seq.lora.enabled=false", "report.plots=false"}, more)
}

// Records that a phase cannot use are counted with reason and line wherever a run reports, and refused above a share.
func TestRecordsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	half := talks(t, 40, func(i int) bool { return i%2 == 0 })
	for _, dry := range []string{"false", "true"} {
		refused(t, run(t, imitate(half, "dry_run="+dry, "hydra.run.dir="+folder(t))...), 2,
			"validation can use", "records without an answer", "talks.jsonl: lines", "data.max_skipped_share=0.05 allows 5 %")
	}
	dir := folder(t)
	got := mustRun(t, imitate(talks(t, 40, func(i int) bool { return i == 7 || i == 9 }), "data.train_ratio=0.9",
		"data.max_skipped_share=0.25", "hydra.run.dir="+dir)...)
	for _, place := range []struct{ name, text, want string }{
		{"the console", got.Stderr + got.Stdout, "records without an answer (talks.jsonl: line"},
		{"the console", got.Stderr + got.Stdout, `talks.jsonl: unknown key "completion" in 40 records, the first in line 1: did you mean completions?`},
		{"the report", read(t, filepath.Join(dir, "report.md")),
			"not used: sft: records without an answer (talks.jsonl: line"},
		{"the report", read(t, filepath.Join(dir, "report.md")),
			"unknown key completion of a record in talks.jsonl, from line 1 on (did you mean completions?)"},
		{"the summary", read(t, filepath.Join(dir, "summary.json")), `record_without_an_answer": "talks.jsonl: line`},
		{"the summary", read(t, filepath.Join(dir, "summary.json")), `"nearest": "completions"`},
	} {
		if !strings.Contains(place.text, place.want) {
			t.Errorf("%s lacks %q:\n%s", place.name, place.want, place.text)
		}
	}
	good := talks(t, 40, func(int) bool { return false })
	refused(t, run(t, imitate(good, "checkpoint.best.metric=val_accuracy", "dry_run=true", "hydra.run.dir="+folder(t))...), 2,
		"checkpoint.best.metric=val_accuracy: no term of rewards has a weight")
	refused(t, run(t, imitate(good, "checkpoint.best.metric=val_accuracy", "rewards.rouge.weight=1", "dry_run=true",
		"hydra.run.dir="+folder(t))...), 2,
		"checkpoint.best.metric=val_accuracy: only rewards.vqa and rewards.accuracy say")
	swapped := filepath.Join(t.TempDir(), "swapped.jsonl")
	write(t, swapped, strings.Repeat(`{"conversations":[{"from":"gpt","value":"so"},{"from":"human","value":"why?"}]}`+"\n", 20))
	for _, scored := range []string{"0", "1"} {
		refused(t, run(t, imitate(swapped, "rewards.rouge.weight="+scored, "dry_run=true", "hydra.run.dir="+folder(t))...), 2,
			"the turns of every training sample are in the wrong order: of 16 samples", "the assistant's", "(swapped.jsonl: lines 1, ")
	}
	none := talks(t, 40, func(int) bool { return true })
	refused(t, run(t, imitate(none, "rewards.format.weight=1", "hydra.run.dir="+folder(t))...), 2,
		"phase sft imitates completions, and no record has one")
	refused(t, run(t, imitate(none, "hydra.run.dir="+folder(t))...), 2,
		"no validation sample ends with an assistant's turn or has answers", "records without an answer")
}

// The dry run asks each phase what it asks when it begins, so that the second does not end a run that the first has
// trained for hours.
func TestDryRunAsksThePhases(t *testing.T) {
	t.Parallel()
	rewards := func(value func(i, g int) float64) []beamRecord {
		rs := records()
		for i := range rs {
			for g, c := range rs[i].Candidates {
				rs[i].Candidates[g] = map[string]any{"pointer": c["pointer"], "reward": value(i, g)}
			}
		}
		return rs
	}
	only := beams(t, rewards(func(i, g int) float64 { return float64(g) }))
	flat := beams(t, rewards(func(int, int) float64 { return 1 }))
	for _, tc := range []struct {
		name string
		args []string
		want []string // nil = it checks
	}{
		{"records with a reward of another name", small(only),
			[]string{"query", "no vqa_correct, which data.reward.mode=hard_plus_soft wants", `"reward" is there`,
				"data.reward.field=NAME"}},
		{"that name given", small(only, "data.reward.field=reward"), nil},
		{"groups without a signal", small(flat, "data.reward.field=reward"),
			[]string{"grpo: 100 % of the", "recorded groups have no signal"}},
		{"frozen parameters that there are not", small(only, "data.reward.field=reward", "grpo.freeze=[nothing]"),
			[]string{`freeze: no parameter has "nothing" in its name`}},
	} {
		for _, dry := range []string{"true", "false"} {
			t.Run(tc.name+" dry_run="+dry, func(t *testing.T) {
				t.Parallel()
				dir := folder(t)
				got := run(t, append(tc.args, "checks.off=[]", "dry_run="+dry, "hydra.run.dir="+dir)...)
				if tc.want == nil {
					if got.Code != 0 {
						t.Errorf("exit code %d\n%s", got.Code, got.Stderr)
					}
					return
				}
				if got.Code == 0 {
					t.Errorf("exit code 0\n%s", got.Stdout)
				}
				for _, want := range tc.want {
					if !strings.Contains(got.Stderr, want) {
						t.Errorf("stderr lacks %q:\n%s", want, got.Stderr)
					}
				}
				if rows := filepath.Join(dir, "metrics.jsonl"); exists(rows) && strings.Contains(read(t, rows), `"kind":"step"`) {
					t.Error("a step was trained before the phases were asked")
				}
			})
		}
	}
}
