package experiments_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// job is what sweep.json says of a job.
type job struct {
	Num      int
	State    string
	Error    string
	ExitCode int `json:"exit_code"`
}

func jobs(t *testing.T, dir string) []job {
	t.Helper()
	var s struct{ Jobs []job }
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "sweep.json"))), &s); err != nil {
		t.Fatal(err)
	}
	return s.Jobs
}

// A job that fails is reported with its cause and stops no other; a resume retries what is missing.
func TestSweep(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	good := strings.TrimPrefix(data[1], "data.beams=")
	missing := filepath.Join(filepath.Dir(good), "later.json")
	dir := folder(t)
	args := append([]string{"-m", "hydra.sweep.dir=" + dir, "data.beams=" + missing + "," + good, "logging.progress=false"}, small([]string{data[0], data[2]})...)
	r := run(t, args...)
	if last := lastLine(r.stderr); r.code != 1 || !strings.Contains(last, "1 of 2 jobs failed") || !strings.Contains(last, "run resume "+dir) {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	got := jobs(t, dir)
	if len(got) != 2 || got[0].State != "failed" || !strings.Contains(got[0].Error, missing) || got[0].ExitCode != 1 || got[1].State != "done" {
		t.Errorf("sweep.json: %+v", got)
	}
	report := read(t, filepath.Join(dir, "report.md"))
	for _, want := range []string{"later.json", "no such file", "Best job"} {
		if !strings.Contains(report, want) {
			t.Errorf("report.md does not mention %q", want)
		}
	}
	if !exists(filepath.Join(dir, "1/report.md")) || !exists(filepath.Join(dir, "multirun.yaml")) {
		t.Error("1/report.md or multirun.yaml is missing")
	}
	if overrides := read(t, filepath.Join(dir, "1/.hydra/overrides.yaml")); !strings.Contains(overrides, "- data.beams="+good) || strings.Contains(overrides, "hydra.") {
		t.Errorf("overrides of job 1:\n%s", overrides)
	}
	refused(t, run(t, args...), 2, dir, "run resume "+dir)
	if s := mustRun(t, "status", dir).stdout; !strings.Contains(s, "#0   failed") || !strings.Contains(s, "#1   done") || !strings.Contains(s, "no such file") {
		t.Errorf("status:\n%s", s)
	}

	write(t, missing, read(t, good))
	second := filepath.Join(dir, "1/summary.json")
	before, err := os.Stat(second)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, "resume", dir)
	for _, j := range jobs(t, dir) {
		if j.State != "done" || j.Error != "" {
			t.Errorf("after the resume: %+v", j)
		}
	}
	if after, err := os.Stat(second); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Error("the resume ran the finished job again")
	}
	mustRun(t, "report", dir)
}

// A job's configuration is checked before the first job starts.
func TestSweepChecksFirst(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,-1", "hydra.sweep.dir="+dir)...), 2, "rce.lr=-1")
	refused(t, run(t, tiny("-m", "schedule=[rce],[sft,sft]", "hydra.sweep.dir="+dir)...), 2, "sft is named twice")
	if exists(dir) {
		t.Error("a refused sweep leaves a folder")
	}
}

// A controller that is killed takes its job with it; both go on where they were. One that is
// interrupted has its job save its state.
func TestSweepKilled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(p *process)
		code int
	}{
		{"front process killed", func(p *process) { p.signal(syscall.SIGKILL) }, 137},
		{"Ctrl-C in a terminal", func(p *process) { p.signalGroup(syscall.SIGINT) }, 130},
		{"terminated", func(p *process) { p.signal(syscall.SIGTERM) }, 143},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			data := beams(t, records())
			dir, alone := folder(t), folder(t)
			args := small(data, "seed=5", "rce.epochs=3", "grpo.epochs=1")
			p := start(t, append(args, "-m", "optim.eps=1e-8,1e-6", "hydra.sweep.dir="+dir)...)
			p.until(func() bool { return exists(filepath.Join(dir, "0/checkpoints/rce_epoch1.state")) })
			tc.end(p)
			if r := p.wait(); r.code != tc.code { // returns once the job has let go of its output
				t.Fatalf("exit code %d, want %d: %s", r.code, tc.code, r.stderr)
			}
			if jobs(t, dir)[0].State == "done" {
				t.Skip("the job was faster")
			}
			if s := run(t, "status", dir).stdout; strings.Contains(s, "running") || !strings.Contains(s, "run resume") {
				t.Errorf("status:\n%s", s)
			}
			mustRun(t, "resume", dir)
			mustRun(t, append(args, "optim.eps=1e-8", "hydra.run.dir="+alone)...)
			got := outcomeOf(t, filepath.Join(dir, "0"))
			outcomeOf(t, alone).same(t, got, 1)
			if !exists(filepath.Join(dir, "1/report.md")) {
				t.Error("the second job did not run")
			}
		})
	}
}
