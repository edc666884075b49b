package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"fulcrum/configs"
	"fulcrum/internal/atomicfile"
	"fulcrum/reports"
)

// sweepMarker is the file that makes a folder a sweep: its jobs and their states.
const sweepMarker = "sweep.json"

// sweep is sweep.json.
type sweep struct {
	Command []string    `json:"command"`
	Flags   []string    `json:"flags"` // --config-path and the like, for every job
	Hydra   []string    `json:"hydra"` // overrides of the hydra node, for every job
	Cwd     string      `json:"cwd"`   // jobs start here: relative paths mean the same
	Jobs    []*sweepJob `json:"jobs"`
	dir     string
}

// sweepJob is one job of a sweep.
type sweepJob struct {
	Num       int      `json:"num"`
	Overrides []string `json:"overrides"`
	Dir       string   `json:"dir"`   // relative to the sweep
	State     string   `json:"state"` // queued, running, done, failed
	ExitCode  int      `json:"exit_code"`
	Error     string   `json:"error,omitempty"` // last line of stderr
}

// Sweep runs the jobs of a multirun one after another, each in its own process and folder: a job that
// dies takes nobody with it.
func (a App) Sweep(ctx context.Context, base configs.Request, jobs [][]string, master *configs.Composed) error {
	if s := master.Choice("hydra/sweeper"); s != "basic" {
		return usagef("hydra/sweeper=%s: this version has the basic sweeper (grids)", s)
	}
	if l := master.Choice("hydra/launcher"); l != "basic" {
		return usagef("hydra/launcher=%s: this version has the basic launcher (one job after another)", l)
	}
	dir, err := hydraValue(master, "sweep.dir")
	if err != nil {
		return err
	}
	if names, err := entries(dir); err != nil {
		return err
	} else if delete(names, ".lock"); len(names) > 0 {
		return usagef("%s is not empty: go on with a sweep by  run resume %s  or name another hydra.sweep.dir", dir, dir)
	}
	composer, err := configs.NewComposer(base)
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	s := &sweep{Command: append([]string{"run", "-m"}, base.Overrides...), Flags: flags(base), Hydra: master.HydraOverrides(), Cwd: cwd, dir: dir}
	for i, overrides := range jobs {
		job, err := composer.Job(master, i, overrides) // every job is checked before the first starts
		if err != nil {
			return err
		}
		if _, err := decode(job); err != nil {
			return fmt.Errorf("job %d (%s): %w", i, strings.Join(overrides, " "), err)
		}
		sub, err := hydraValue(job, "sweep.subdir")
		if err != nil {
			return err
		}
		s.Jobs = append(s.Jobs, &sweepJob{Num: i, Overrides: overrides, Dir: sub, State: "queued"})
	}
	f, err := claim(dir)
	if err != nil {
		return err
	}
	defer f.release()
	text, err := master.YAML("job", false, "")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, "multirun.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := s.save(); err != nil { // from here on a killed sweep can be resumed
		return err
	}
	return s.run(ctx)
}

// flags repeats the request's config search flags.
func flags(r configs.Request) []string {
	var out []string
	for _, f := range []struct{ name, value string }{{"--config-path", r.ConfigPath}, {"--config-name", r.ConfigName}, {"--config-dir", r.ConfigDir}} {
		if f.value != "" {
			out = append(out, f.name+"="+f.value)
		}
	}
	return out
}

// resumeSweep runs what is missing of a sweep.
func resumeSweep(ctx context.Context, dir string) error {
	s, err := readSweep(dir)
	if err != nil {
		return err
	}
	f, err := claim(dir)
	if err != nil {
		return err
	}
	defer f.release()
	if err := f.clean(); err != nil {
		return err
	}
	return s.run(ctx)
}

// status prints the jobs of a sweep, or the standing of one run.
func status(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, sweepMarker)); err != nil {
		if !isRun(dir) {
			return usagef("%s: neither a run folder nor a sweep folder", dir)
		}
		fmt.Println(runStatus(dir))
		return nil
	}
	s, err := readSweep(dir)
	if err != nil {
		return err
	}
	for _, job := range s.Jobs {
		line := job.State
		if path := filepath.Join(dir, job.Dir); isRun(path) && job.State != "failed" {
			line = runStatus(path)
		}
		fmt.Printf("#%-3d %s  %s\n", job.Num, line, strings.Join(job.Overrides, " "))
		if job.Error != "" {
			fmt.Printf("     %s\n", job.Error)
		}
	}
	return nil
}

// runStatus says in a few words how far a run is: from its summary and its lock.
func runStatus(dir string) string {
	at := ""
	if rows, err := reports.ReadRun(dir); err == nil && len(rows.Epochs) > 0 {
		last := rows.Epochs[len(rows.Epochs)-1]
		at = fmt.Sprintf(" after %s epoch %d", last.Phase, last.Epoch)
	}
	if locked(dir) {
		return "running" + at
	}
	s, err := reports.ReadSummary(dir)
	switch {
	case err != nil || s == nil:
		return "killed" + at + " (run resume " + dir + ")"
	case s.State == reports.StateDone:
		return "done"
	}
	return s.State + at + " (run resume " + dir + ")"
}

func readSweep(dir string) (*sweep, error) {
	path := filepath.Join(dir, sweepMarker)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &sweep{dir: dir}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (s *sweep) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(s.dir, sweepMarker), append(text, '\n'), 0o644)
}

// run runs every job that is not done, in order, and writes the sweep's report.
func (s *sweep) run(ctx context.Context) error {
	fmt.Printf("sweep of %d jobs → %s\n", len(s.Jobs), s.dir)
	failed := 0
	for _, job := range s.Jobs {
		if job.State == "done" {
			continue
		}
		fmt.Printf("\t#%d : %s\n", job.Num, strings.Join(job.Overrides, " "))
		job.State, job.Error = "running", ""
		if err := s.save(); err != nil {
			return err
		}
		if err := s.start(ctx, job); err != nil {
			if ctx.Err() != nil {
				job.State = "queued"
				return errors.Join(s.save(), &InterruptedError{context.Cause(ctx), s.dir})
			}
			job.State, job.Error = "failed", err.Error()
			failed++
		} else {
			job.State = "done"
		}
		if err := s.save(); err != nil {
			return err
		}
	}
	if err := writeSweepReport(s.dir); err != nil {
		return err
	}
	fmt.Printf("report: %s\n", filepath.Join(s.dir, "report.md"))
	if failed > 0 {
		return fmt.Errorf("%d of %d jobs failed (report.md has the causes); retry them with  run resume %s", failed, len(s.Jobs), s.dir)
	}
	return nil
}

// start runs one job in a process of its own: a new run, or a resume of one that was interrupted.
func (s *sweep) start(ctx context.Context, job *sweepJob) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, job.Dir)
	if !filepath.IsAbs(dir) {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	args := slices.Concat(s.Flags, job.Overrides, s.Hydra)
	args = append(args, "hydra.mode=RUN", "hydra.run.dir="+quoted(dir), fmt.Sprintf("hydra.job.num=%d", job.Num), fmt.Sprintf("hydra.job.id=%d", job.Num))
	if isRun(dir) {
		args = []string{"resume", dir}
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Dir = s.Cwd
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // the job saves its state
	tail := &lastLine{}
	cmd.Stdout, cmd.Stderr = os.Stdout, io.MultiWriter(os.Stderr, tail)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the parent-death signal follows the thread that started the child
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	job.ExitCode = cmd.ProcessState.ExitCode()
	if err != nil && tail.line() != "" {
		return errors.New(strings.TrimPrefix(tail.line(), "run: "))
	}
	return err
}

// quoted makes any text one string of the override grammar.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\'`, `\\'`), "'", `\'`) + "'"
}

// lastLine keeps the last line written to it.
type lastLine struct{ last, open []byte }

func (l *lastLine) Write(p []byte) (int, error) {
	l.open = append(l.open, p...)
	for {
		line, rest, ok := strings.Cut(string(l.open), "\n")
		if !ok {
			return len(p), nil
		}
		if strings.TrimSpace(line) != "" {
			l.last = []byte(line)
		}
		l.open = []byte(rest)
	}
}

func (l *lastLine) line() string {
	if s := strings.TrimSpace(string(l.open)); s != "" {
		return s
	}
	return string(l.last)
}

// writeSweepReport writes report.md of a sweep folder.
func writeSweepReport(dir string) error {
	s, err := readSweep(dir)
	if err != nil {
		return err
	}
	opt := reports.SweepOptions{Title: "sweep of " + fmt.Sprint(len(s.Jobs)) + " jobs", Command: s.Command}
	jobs := make([]reports.SweepJob, len(s.Jobs))
	for i, j := range s.Jobs {
		jobs[i] = reports.SweepJob{Number: j.Num, Overrides: j.Overrides, Dir: filepath.Join(dir, j.Dir), State: j.State, Cause: j.Error, ExitCode: j.ExitCode,
			Command: append([]string{"run"}, j.Overrides...)}
		summary, err := reports.ReadSummary(jobs[i].Dir)
		if err != nil {
			return err
		}
		if summary != nil && summary.Best != nil && j.State == "done" {
			jobs[i].Objectives = []float64{float64(summary.Best.Value)}
			opt.Objectives = []reports.SweepObjective{{Name: summary.Best.Metric, Minimize: summary.Best.Mode == "min"}}
		}
	}
	return reports.WriteSweepReport(dir, jobs, opt)
}
