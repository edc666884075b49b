package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/digest"
	"fulcrum/reports/page"
)

// stages runs the pieces of task=icl. A stage is a run of this program of its own, in a folder that is named after all that it
// depends on: one that is done is not run again, one that was interrupted is resumed, and jobs that share the folder of
// stages wait for each other.
type stages struct {
	job  *job.Job
	root string
	cwd  string
	base []string // overrides of this job that concern its stages
	more []string // flags that say where its configuration lies
	read []string // what its stages depend on beside that
	num  int
	log  func(format string, args ...any)
}

func newStages(j *job.Job) (*stages, error) {
	root := filepath.Join(j.Dir, "stages")
	if s := j.Config.ICL.Stages; s != nil {
		root = *s
	}
	s := &stages{job: j, log: j.Logf}
	var err error
	if s.root, err = filepath.Abs(root); err == nil {
		s.cwd, err = os.Getwd()
	}
	for _, o := range j.Overrides {
		if !slices.Contains([]string{"seed", "task", "icl"}, section(o)) {
			s.base = append(s.base, o)
		}
	}
	if err != nil || j.Config.DryRun { // a rehearsal has no folder
		return s, err
	}
	saved, err := runfolder.ReadSaved(j.Dir)
	if s.more = saved.Flags(); len(s.more) > 0 { // files of the user's may change
		s.read = append(s.read, j.Hash)
	}
	for _, path := range []*string{j.Config.LVLM.Path, j.Config.LVLM.Template, j.Config.Encoder.Path, j.Config.Selector.Clip.Path,
		j.Config.Data.Embeddings} {
		if path != nil {
			s.read = append(s.read, state(*path)...)
		}
	}
	return s, err
}

// state says how a file, or what lies in a folder, was last written: other weights make other stages.
func state(path string) (out []string) {
	add := func(info os.FileInfo, err error) {
		if err == nil && !info.IsDir() {
			out = append(out, fmt.Sprint(info.Name(), " ", info.Size(), " ", info.ModTime().UnixNano()))
		}
	}
	add(os.Stat(path))
	inside, _ := os.ReadDir(path) // whoever opens it says what is wrong
	for _, e := range inside {
		add(os.Stat(filepath.Join(path, e.Name())))
	}
	return out
}

// section is the first part of an override's key: the section or the group that it belongs to.
func section(override string) string {
	key, _, _ := strings.Cut(strings.TrimLeft(override, "+~"), "=")
	name, _, _ := strings.Cut(key, ".")
	name, _, _ = strings.Cut(name, "/")
	return name
}

// what says which sections of the configuration each kind of stage depends on, beside exp.
func what(task string) []string {
	switch task {
	case "embed":
		return []string{"data", "encoder", "device", "threads"}
	case "beams", "infer":
		return []string{"data", "lvlm", "beams", "infer", "device", "threads"}
	}
	return nil // all of them
}

// run makes sure that a stage is done and returns its folder. from are the digests of files that it reads and that no other stage
// made.
func (s *stages) run(ctx context.Context, name, task string, args []string, from ...string) (string, error) {
	var all []string
	for _, o := range s.base {
		if of := what(task); of == nil || section(o) == "exp" || slices.Contains(of, section(o)) {
			all = append(all, o)
		}
	}
	all = append(append(all, "task="+task), args...)
	return s.start(ctx, name, all, from)
}

// start runs a stage with these overrides and no others.
func (s *stages) start(ctx context.Context, name string, all, from []string) (string, error) {
	all = slices.Concat(s.more, all)
	text, err := json.Marshal([]any{name, all, slices.Concat(from, s.read)})
	if err != nil {
		return "", err
	}
	key := digest.Of([]byte(strings.ReplaceAll(string(text), s.root, ""))) // the folder may be moved
	dir := filepath.Join(s.root, name+"-"+key[:12])
	s.num++
	work := launcher.Job{Num: s.num, Dir: dir, Cwd: s.cwd, Threads: s.job.Threads(),
		Args: append(slices.Clone(all), "hydra.run.dir="+quoted(dir), "logging.progress=false")}
	begun, how := time.Now(), launcher.Supervision{Env: []string{runfolder.ExpectedHash + "="},
		Started: func(launcher.Attempt) { s.log("%s: at work, in %s", name, dir) }}
	for told := false; ; told = true {
		a, err := launcher.Supervise(ctx, work, how)
		switch {
		case errors.Is(err, launcher.ErrBusy):
			if !told {
				s.log("%s: another job is at it, in %s", name, dir)
			}
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(time.Second):
			}
			continue
		case err != nil:
			return "", fmt.Errorf("stage %s: %w", name, err)
		case a.State == launcher.Interrupted && ctx.Err() != nil:
			return "", ctx.Err()
		case a.State != launcher.Done:
			return "", fmt.Errorf("stage %s: %s (%s)", name, a.Cause, filepath.Join(dir, "job.log"))
		case a.Ended.Before(begun):
			s.log("%s: done before, in %s", name, dir)
		default:
			s.log("%s: done in %s", name, page.Duration(a.Ended.Sub(begun).Seconds()))
		}
		return dir, nil
	}
}

// quoted writes a path as the value of an override.
func quoted(path string) string { return "'" + strings.ReplaceAll(path, "'", `\'`) + "'" }
