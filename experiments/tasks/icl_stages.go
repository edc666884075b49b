//go:build !core

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

	"fulcrum/beamdata/icl"
	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/internal/parallel"
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
	plan bool // stages are composed and nothing runs
	log  func(format string, args ...any)
}

func newStages(j *job.Job) (*stages, error) {
	root := filepath.Join(j.Dir, "stages")
	if s := iclOf(j.Config).Stages; s != nil && !j.Config.DryRun {
		root = *s
	}
	s := &stages{job: j, log: j.Logf}
	var err error
	if s.root, err = filepath.Abs(root); err == nil {
		s.cwd, err = os.Getwd()
	}
	for _, o := range j.Overrides {
		key, _, _ := strings.Cut(strings.TrimLeft(o, "+~"), "=")
		which := key == "lvlm.path" || key == "lvlm.model" // each stage that asks a model is told which
		if !which && !slices.Contains([]string{"seed", "task", "icl"}, section(o)) {
			s.base = append(s.base, o)
		}
	}
	if err != nil || j.Config.DryRun { // a dry run has no folder
		return s, err
	}
	saved, err := runfolder.ReadSaved(j.Dir)
	if s.more = saved.Flags(); len(s.more) > 0 { // files of the user's may change
		s.read = append(s.read, j.Hash)
	}
	c := j.Config
	for _, path := range []*string{lvlmOf(c).Template, encoderOf(c).Path, selectorOf(c).Clip.Path, c.Data.Embeddings} {
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

// edition counts how often what a task makes of equal input has changed. It stands in the names of stages: raise it with such a
// change, so that what an older program left is made again.
func edition(task string) int {
	return map[string]int{"world": 2, "embed": 1, "beams": 2, "infer": 3, "train": 1, "predict": 1}[task]
}

// pictures digests the contents of the records' image files: a picture that is replaced under its name is another one. One that
// cannot be read is named by the stage that needs it.
func pictures(ctx context.Context, records *icl.Table) (string, error) {
	number, paths := map[string]int{}, []string{}
	for _, r := range records.All() {
		if _, seen := number[r.Image]; !seen && r.Image != "" {
			number[r.Image] = len(paths)
			paths = append(paths, r.Image)
		}
	}
	sums := make([]string, len(paths))
	err := parallel.Each(ctx, len(paths), 0, func(i int) error {
		sums[i], _, _ = digest.File(paths[i])
		return nil
	})
	h := digest.New()
	for _, r := range records.All() {
		if r.Image != "" {
			fmt.Fprint(h, sums[number[r.Image]])
		}
		fmt.Fprintln(h)
	}
	return h.Hex(), err
}

// run makes sure that a stage is done and returns its folder. from are the digests of files that it reads and that no other stage
// made.
func (s *stages) run(ctx context.Context, name, task string, args []string, from ...string) (string, error) {
	of := what(task)
	all := list.Filter(s.base, func(o string) bool { return of == nil || section(o) == "exp" || slices.Contains(of, section(o)) })
	all = append(append(all, "task="+task), args...)
	return s.start(ctx, name, edition(task), all, from)
}

// folder is a stage's, named after all that it depends on.
func (s *stages) folder(name string, edition int, all, from []string) (string, error) {
	on := list.Map(all, func(o string) string { return canonical(strings.ReplaceAll(o, s.root, "")) }) // the folder of stages may be moved
	text, err := json.Marshal([]any{name, edition, on, slices.Concat(from, s.read)})
	return filepath.Join(s.root, name+"-"+digest.Of(text)[:12]), err
}

// start runs a stage with these overrides and no others.
func (s *stages) start(ctx context.Context, name string, edition int, all, from []string) (string, error) {
	if s.plan {
		if _, err := s.job.Compose(all); err != nil {
			return "", fmt.Errorf("stage %s: %w", name, err)
		}
		return filepath.Join(s.root, name), nil
	}
	all = slices.Concat(s.more, all)
	dir, err := s.folder(name, edition, all, from)
	if err != nil {
		return "", err
	}
	s.num++
	work := launcher.Job{Num: s.num, Dir: dir, Cwd: s.cwd, Threads: s.job.Threads(),
		Args: append(slices.Clone(all), "hydra.run.dir="+configs.Quote(dir), "logging.progress=false")}
	begun, how := time.Now(), launcher.Supervision{Env: []string{runfolder.ExpectedHash + "="},
		Started: func(launcher.Attempt) { s.log("%s: at work, in %s", name, dir) }}
	defer s.follow(name, dir)()
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

// follow takes what a stage writes into its folder for progress of this run, until the function that it returns is called. A stage that
// stands still says so itself, and then this run does.
func (s *stages) follow(name, dir string) (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		every := min(15*time.Second, time.Duration(s.job.Config.Logging.StallMinutes*float64(time.Minute))/3)
		if every <= 0 { // nobody watches
			return
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		for before := state(dir); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if now := state(dir); !slices.Equal(now, before) {
				before = now
				s.job.Log.Moved("stage " + name + " wrote to " + dir)
			}
		}
	}()
	return func() { close(done); <-ended }
}

// canonical writes an override in the one way that stands in names: a sweep hands its jobs False where a user wrote false.
func canonical(override string) string {
	if o, err := configs.ParseOverride(override); err == nil && o.Value() != nil {
		key, _, _ := strings.Cut(override, "=")
		return key + "=" + o.Value().YAML()
	}
	return override
}
