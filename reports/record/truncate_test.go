package record

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// play records what a scheduler would, from a restored position on, and calls save wherever a state
// would be saved. Two phases with two epochs of three steps; baselines come first. It stops when save
// returns false.
func play(t *testing.T, dir string, from *Position, save func(Position, *Log) bool) {
	t.Helper()
	log, err := OpenLog(dir, LogOptions{LoggingOptions: DefaultLoggingOptions(), Restored: from, Stderr: &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	start := Position{}
	if from != nil {
		start = *from
	}
	if start.GlobalStep == 0 {
		Record(t, log, KindEval, "", 0, 0, 0, map[string]any{"split": "val", "policy": "init", "reward": 0.1})
		evaluate(t, dir, "init", "", 0)
	}
	global := 0
	for _, phase := range []string{"rce", "grpo"} {
		step := 0
		for epoch := 1; epoch <= 2; epoch++ {
			for range 3 {
				step++
				global++
				if global <= start.GlobalStep {
					continue
				}
				Record(t, log, KindStep, phase, epoch, step, global, map[string]any{"loss": float64(global), "step_seconds": 0.1})
				sampled := []Completion{{QueryID: 7, Text: "a\nb", Tokens: []int64{3, 1}, Reward: 1},
					{QueryID: 7, Group: 1, Truncated: true, Terms: map[string]float64{"format": 0.3}}}
				if err := log.Completions(phase, epoch, step, sampled); err != nil {
					t.Fatal(err)
				}
				if step == 5 { // checkpoint.every_steps
					Record(t, log, KindEvent, phase, epoch, step, global, map[string]any{"event": "note", "message": "half way"})
					if !save(Position{Phase: phase, Epoch: epoch - 1, GlobalStep: global}, log) {
						return
					}
				}
			}
			if start.GlobalStep < global {
				Record(t, log, KindEpoch, phase, epoch, step, global, map[string]any{"loss": 1.0})
				evaluate(t, dir, phase, phase, epoch)
				if !save(Position{Phase: phase, Epoch: epoch, GlobalStep: global}, log) {
					return
				}
			}
			if start.GlobalStep > global {
				continue
			}
			// What follows a state and is made again after a resume.
			Record(t, log, KindEval, phase, epoch, step, global, map[string]any{"split": "dev", "policy": phase, "reward": 0.2})
		}
	}
}

func evaluate(t *testing.T, dir, policy, phase string, epoch int) {
	t.Helper()
	e := Evaluation{Split: "val", Policy: policy, Phase: phase, Epoch: epoch, Metric: "reward", QueryIDs: []int64{1, 2},
		Scores: []float64{0, 1}}
	if err := AppendEvals(dir, e); err != nil {
		t.Fatal(err)
	}
}

var volatile = regexp.MustCompile(`"(time|step_seconds)":[0-9.]+,?`)

// stable returns the lines that resumes must reproduce, without what may differ.
func stable(t *testing.T, dir, file string) (rows []string, resumes int) {
	t.Helper()
	for _, line := range lines(t, filepath.Join(dir, file)) {
		if isResumeLine([]byte(line)) {
			resumes++
			continue
		}
		rows = append(rows, volatile.ReplaceAllString(line, ""))
	}
	return rows, resumes
}

func TestResumedLogsEqualUninterruptedOnes(t *testing.T) {
	whole := t.TempDir()
	var states []Position
	play(t, whole, nil, func(p Position, log *Log) bool {
		var err error
		p.Rows, p.Evals, p.Completions, err = log.Mark()
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, p)
		return true
	})
	wantRows, _ := stable(t, whole, MetricsFile)
	wantEvals, _ := stable(t, whole, EvalsFile)
	wantCompletions, err := readCompletions(whole)
	if err != nil || len(states) != 6 || len(wantRows) != 12+4+4+2+1 || len(wantCompletions) != 2*12 {
		t.Fatalf("%d states, %d rows and %d completions, %v", len(states), len(wantRows), len(wantCompletions), err)
	}
	if c := wantCompletions[23]; c.Phase != "grpo" || c.Epoch != 2 || c.Step != 6 || c.Group != 1 || !c.Truncated ||
		c.Terms["format"] != 0.3 {
		t.Errorf("the last completion is %+v", c)
	}
	states = append(states, Position{}) // no usable checkpoint: start over
	for i, state := range states {
		// The run dies at its very end, or in the middle of a line, and goes on from an earlier state;
		// it dies again at the next state and goes on once more.
		dir := t.TempDir()
		play(t, dir, nil, func(Position, *Log) bool { return true })
		f, err := os.OpenFile(filepath.Join(dir, MetricsFile), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(`{"kind":"step","pha`)
		f.Close()
		saved := state
		play(t, dir, &state, func(p Position, log *Log) bool {
			var err error
			p.Rows, p.Evals, p.Completions, err = log.Mark()
			if err != nil {
				t.Fatal(err)
			}
			saved = p
			return false
		})
		play(t, dir, &saved, func(Position, *Log) bool { return true })
		rows, resumes := stable(t, dir, MetricsFile)
		evals, _ := stable(t, dir, EvalsFile)
		if resumes != 2 {
			t.Errorf("state %d: %d resume events, want 2", i, resumes)
		}
		// The events of both resumes stand where their states do; other rows are as if nothing happened.
		if got, want := strings.Join(rows, "\n"), strings.Join(wantRows, "\n"); got != want {
			t.Errorf("state %d (%+v): rows differ\n got %s\nwant %s", i, state, got, want)
		}
		if !slices.Equal(evals, wantEvals) {
			t.Errorf("state %d: evals differ\n got %v\nwant %v", i, evals, wantEvals)
		}
		if got, err := readCompletions(dir); err != nil || !reflect.DeepEqual(got, wantCompletions) {
			t.Errorf("state %d: completions differ (%v)\n got %v\nwant %v", i, err, got, wantCompletions)
		}
	}
}

func TestTruncateRefusesAFolderThatLostRows(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, MetricsFile)
	if err := os.WriteFile(path, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := truncate(dir, Position{Phase: "rce", Epoch: 1, GlobalStep: 3, Rows: 2})
	if err == nil || err.Error() != path+": 1 lines, the saved state knows 2: records are missing" {
		t.Errorf("got %v", err)
	}
	if _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("ReadRun: got %v", err)
	}
}

// readCompletions reads completions.jsonl in the order it was written. A folder without the file has none.
func readCompletions(dir string) ([]SampledCompletion, error) {
	var rows []SampledCompletion
	err := EachJSON(filepath.Join(dir, CompletionsFile), func(c SampledCompletion) error {
		rows = append(rows, c)
		return nil
	})
	return rows, err
}

// A run that goes on has not ended as its summary and report say.
func TestResumeRemovesTheEarlierEnd(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"summary.json", "manifest.json", "report.md", "report.html"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	play(t, dir, &Position{}, func(Position, *Log) bool { return false })
	for _, pattern := range []string{"*.json", "report.*"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
			t.Errorf("a resume leaves %v", left)
		}
	}
}
