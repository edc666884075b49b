package tasks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/runtest"
)

// A signal that comes while a reward program, a server of rewards or a judge is asked interrupts the run: its state is that before the
// step, or before the end of the epoch, and a resume ends with the bytes of a run that was never interrupted. A terminal sends the
// signal to the program too, which ends first then.
func TestSignalWhileRewardsAreAsked(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	file := func(name string) string { return filepath.Join(work, name) }
	script, where, row, hung, pid := file("score.sh"), file("where"), file("row"), file("hung"), file("pid")
	write(t, script, `if grep -qF "$(cat `+row+`)" "$(cat `+where+`)/metrics.jsonl"; then sleep 1000 & echo $! > `+pid+`; echo > `+hung+`; sleep 600; exit 3; fi
while read -r line; do echo "0.$((${#line} % 7))"; done
`)
	var hangs atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Items    []struct{ Completion string }
			Messages []struct{ Content string }
		}
		json.NewDecoder(r.Body).Decode(&body)
		if strings.Contains(readIf(filepath.Join(readIf(where), "metrics.jsonl")), readIf(row)) {
			hangs.Store(true)
			<-r.Context().Done()
			return
		}
		if body.Messages != nil {
			fmt.Fprintf(w, `{"choices": [{"message": {"content": "%d"}}]}`, len(body.Messages[0].Content)%10)
			return
		}
		scores := []float64{}
		for _, it := range body.Items {
			scores = append(scores, float64(len(it.Completion)%7)/7)
		}
		json.NewEncoder(w).Encode(scores)
	}))
	defer server.Close()
	epoch := func(epoch, step int) string {
		return fmt.Sprintf(`"kind":"step","phase":"grpo","epoch":%d,"step":%d,`, epoch, step)
	}
	inStep, atEnd, last := epoch(1, 2), epoch(1, 6), epoch(2, 12)
	for _, asked := range []struct {
		name   string
		args   []string
		rows   []string // a request hangs when this is the last row
		signal syscall.Signal
		group  bool // as a terminal does
	}{
		{"url", []string{"rewards.external.weight=1", "rewards.external.url=" + server.URL}, []string{inStep, atEnd, last}, syscall.SIGTERM,
			false},
		{"command", []string{"rewards.external.weight=1", "rewards.external.command=[sh,'" + script + "']"},
			[]string{inStep, atEnd}, syscall.SIGINT, true},
		{"judge", []string{"rewards.judge.weight=1", "rewards.judge.url=" + server.URL}, []string{inStep, atEnd}, syscall.SIGINT, false},
	} {
		if testing.Short() {
			if asked.name == "judge" { // a server too
				continue
			}
			asked.rows = asked.rows[:len(asked.rows)-1]
		}
		args := tinySummaries("t5", append(asked.args, "schedule=[grpo]", "rewards.length.weight=0", "checks.off=[preflight]")...)
		whole := folder(t)
		write(t, where, whole)
		write(t, row, "none")
		mustRun(t, append(args, "hydra.run.dir="+whole)...)
		for _, at := range asked.rows {
			dir := folder(t)
			write(t, where, dir)
			write(t, row, at)
			write(t, hung, "")
			hangs.Store(false)
			p := start(t, append(args, "hydra.run.dir="+dir)...)
			p.Until(func() bool { return hangs.Load() || readIf(hung) != "" })
			if asked.group {
				p.SignalGroup(asked.signal)
			} else {
				p.Signal(asked.signal)
			}
			r := p.Wait()
			if asked.name == "command" { // in a shell without a terminal it ignores SIGINT, and its parent has ended by it
				started, err := strconv.Atoi(strings.TrimSpace(read(t, pid)))
				if err != nil {
					t.Fatal(err)
				}
				golden.Ended(t, started)
			}
			if r.Code != 128+int(asked.signal) || !strings.Contains(r.Stderr, "the state is saved, go on with: `run resume "+dir) ||
				strings.Contains(r.Stderr, "scorer") {
				t.Errorf("%s after %s: exit %d: %s", asked.name, at, r.Code, r.Stderr)
				continue
			}
			if s := read(t, filepath.Join(dir, "summary.json")); !strings.Contains(s, `"state": "interrupted"`) {
				t.Errorf("%s: %.400s", asked.name, s)
			}
			_, step, _ := strings.Cut(strings.TrimSuffix(at, ","), `"step":`)
			if states, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "*_step*.state")); len(states) != 1 {
				t.Errorf("%s after %s: states %v, want one of step %s", asked.name, at, states, step)
			}
			write(t, row, "none")
			mustRun(t, "resume", dir)
			outcomeOf(t, whole).Same(t, outcomeOf(t, dir), 1)
			if n, _ := strconv.Atoi(step); strings.Count(read(t, filepath.Join(dir, "metrics.jsonl")), `"kind":"step"`) != 12 || n == 0 {
				t.Errorf("%s after %s: want 12 steps", asked.name, at)
			}
		}
	}
}

// What the program of a reward holds is part of what a run learns from: a resume with another one is refused, a comparison knows.
func TestRewardProgramsAreRemembered(t *testing.T) {
	t.Parallel()
	script, dir, other := filepath.Join(t.TempDir(), "score.sh"), folder(t), folder(t)
	text := "while read -r line; do echo \"0.$((${#line} % 7))\"; done\n"
	write(t, script, text)
	args := tinySummaries("t5", "rewards.external.weight=1", "rewards.external.command=[sh,'"+script+"']", "schedule=[grpo]",
		"rewards.length.weight=0", "checks.off=[preflight]")
	mustRun(t, append(args, "hydra.run.dir="+dir)...)
	write(t, script, strings.Replace(text, "% 7", "% 5", 1))
	mustRun(t, append(args, "hydra.run.dir="+other)...)
	if r := run(t, "diff", dir, other); !runtest.Core && (r.Code != 1 || !strings.Contains(r.Stdout, "rewards.score.sh")) {
		t.Errorf("exit code %d\n%s", r.Code, r.Stdout)
	}
	if err := os.Remove(filepath.Join(dir, "summary.json")); err != nil { // as if it had been killed
		t.Fatal(err)
	}
	refused(t, run(t, "resume", dir), 2, "score.sh: its content is not what the saved state has learned from", "--rerun")
	write(t, script, text)
	mustRun(t, "resume", dir)
}

// A file that is not there is told before a folder is made, and before anybody asks for the model.
func TestInferReadsBeforeItAsks(t *testing.T) {
	runtest.NeedsAnnexes(t)
	dir := t.TempDir()
	records := filepath.Join(dir, "records.jsonl")
	write(t, records, `{"id": 1, "question": "q", "answers": ["a"]}
{"id": 2, "question": "q", "answers": ["a"], "split": "val"}`)
	r := run(t, "task=infer", "data.records_icl="+records, "infer.predictions=nowhere.jsonl", "lvlm.backend=vllm",
		"lvlm.url=http://127.0.0.1:9", "infer.out="+filepath.Join(dir, "new", "x.json"), "hydra.run.dir="+folder(t))
	refused(t, r, 2, "nowhere.jsonl: no such file: set infer.predictions to an existing one")
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("the folder of infer.out is left behind")
	}
}
