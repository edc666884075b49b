package workload

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/beamdata/conversation"
	"fulcrum/experiments/job"
	"fulcrum/reports/record"
	"fulcrum/selector/prompts"
)

// Demonstrations are not cut at the length of samples, nor where one of them has nothing to imitate and is left out.
func TestDemosAreWhole(t *testing.T) {
	dir := t.TempDir()
	file := func(name, lines string) *string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
		return &path
	}
	const whole = `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a long answer"}]}` + "\n"
	const prompt = `{"messages": [{"role": "user", "content": "q"}]}` + "\n"
	for name, demos := range map[string]string{"all": whole + whole, "one is left out": whole + prompt} {
		opt := conversation.DefaultOptions()
		opt.Train, opt.Val, opt.SFT = file("train.jsonl", whole), file("val.jsonl", whole), file("sft.jsonl", demos)
		b, err := conversation.Open(opt)
		if err != nil {
			t.Fatal(err)
		}
		j := &job.Job{Config: job.DefaultConfig(job.Entries{Policies: Traits()}), Dir: t.TempDir()}
		j.Config.Data.MaxSkippedShare = 0.5
		if j.Log, err = record.OpenLog(j.Dir, record.LogOptions{}); err != nil {
			t.Fatal(err)
		}
		defer j.Log.Close()
		w := textWorkload[int]{job: j, bundle: b, sources: map[*conversation.Set]*prompts.Source[int]{},
			used: map[string]*conversation.Set{}, skipped: map[string]conversation.Skipped{},
			text: prompts.Text{Encode: func(text string) []int64 { return make([]int64, len(text)) }, EOS: []int64{1}, MaxTokens: 4}}
		src, err := w.Demos("sft")
		if err != nil {
			t.Fatal(err)
		}
		if got := src.(*prompts.Source[int]).MaxTokens(); got != math.MaxInt {
			t.Errorf("%s: cut at %d tokens", name, got)
		}
	}
}
