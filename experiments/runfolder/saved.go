package runfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"fulcrum/configs"
	"fulcrum/internal/list"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
)

// Saved is what .hydra/hydra.yaml says about a run beyond its configuration.
type Saved struct {
	Hydra struct {
		Overrides struct {
			Task  []string `yaml:"task"`
			Hydra []string `yaml:"hydra"`
		} `yaml:"overrides"`
		Runtime struct {
			Choices map[string]*string `yaml:"choices"`
			Cwd     string             `yaml:"cwd"`
			Sources []struct {
				Path     string `yaml:"path"`
				Schema   string `yaml:"schema"`
				Provider string `yaml:"provider"`
			} `yaml:"config_sources"`
		} `yaml:"runtime"`
		Job struct {
			ConfigName *string           `yaml:"config_name"`
			Chdir      bool              `yaml:"chdir"`
			EnvSet     map[string]string `yaml:"env_set"`
			Num        any               `yaml:"num"` // ??? outside a sweep
		} `yaml:"job"`
		Sweep struct {
			Dir string `yaml:"dir"`
		} `yaml:"sweep"`
		Sweeper struct {
			Pruner struct {
				Name string `yaml:"name"`
			} `yaml:"pruner"`
		} `yaml:"sweeper"`
	} `yaml:"hydra"`
}

// Choice returns the option that was chosen in a config group, "" for none.
func (s Saved) Choice(group string) string {
	if name := s.Hydra.Runtime.Choices[group]; name != nil {
		return *name
	}
	return ""
}

// Flags repeats what said where the configuration's files lie: --config-path, --config-dir, --config-name and hydra.searchpath.
func (s Saved) Flags() (out []string) {
	for _, source := range s.Hydra.Runtime.Sources {
		flag := map[string]string{"main": "--config-path=", "command-line": "--config-dir="}[source.Provider]
		if flag != "" && source.Schema == "file" {
			out = append(out, flag+source.Path)
		}
	}
	if name := s.Hydra.Job.ConfigName; name != nil && *name != "config" {
		out = append(out, "--config-name="+*name)
	}
	return append(out, list.Filter(s.Hydra.Overrides.Hydra, func(o string) bool {
		return strings.HasPrefix(strings.TrimLeft(o, "+"), "hydra.searchpath=")
	})...)
}

// SweepFolder returns the folder of the sweep whose job a run is; "" of no job.
func (s Saved) SweepFolder() string {
	if _, job := s.Hydra.Job.Num.(int); job {
		return s.Hydra.Sweep.Dir
	}
	return ""
}

// ReadSaved reads the .hydra/hydra.yaml of a run folder.
func ReadSaved(dir string) (Saved, error) {
	var saved Saved
	path := filepath.Join(dir, ".hydra", "hydra.yaml")
	text, err := regular.ReadDocument(path)
	if err != nil {
		return saved, err
	}
	if err := yaml.Unmarshal(text, &saved); err != nil {
		return saved, fmt.Errorf("%s: %w", path, err)
	}
	return saved, nil
}

// CheckExists refuses the path of a folder or file that does not exist.
func CheckExists(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return usage.Errorf("%s: no such folder%s: runs lie in outputs/DATE/TIME, sweeps in multirun/DATE/TIME, or where "+
			"hydra.run.dir and hydra.sweep.dir said", path, nearpath.Hint(path))
	}
	return nil
}

// NoRun is the error of a folder that should be one of a run or a sweep and is neither. It names some that lie below it.
func NoRun(dir string) error {
	for above := filepath.Dir(dir); above != filepath.Dir(above); above = filepath.Dir(above) { // a report, a checkpoint
		if IsRun(above) {
			return usage.Errorf("%s lies in a run folder: name the folder itself, %s", dir, above)
		}
	}
	jobs, _ := regular.Glob(dir, filepath.Join("*", Marker))
	if _, err := os.Stat(filepath.Join(dir, "multirun.yaml")); err == nil && len(jobs) > 0 {
		return usage.Errorf("%s is the folder of a sweep: name one of its runs, such as %s", dir, filepath.Dir(filepath.Dir(jobs[0])))
	}
	const most, deepest = 2, 3
	var below []string
	for depth, pattern := 0, Marker; depth < deepest && len(below) == 0; depth++ {
		pattern = filepath.Join("*", pattern)
		below, _ = regular.Glob(dir, pattern)
	}
	if len(below) == 0 {
		return usage.Errorf("%s: neither a run folder nor a sweep folder", dir)
	}
	// by name, dates too: the newest
	names := list.Map(below[max(len(below)-most, 0):], func(path string) string { return filepath.Dir(filepath.Dir(path)) })
	return usage.Errorf("%s: neither a run folder nor a sweep folder, but some lie below it, such as %s; list them: %s", dir,
		strings.Join(names, " and "), program.OnFolder("ls", dir))
}

// Enter makes the folder cwd, where the run in dir was started, the current one.
func Enter(cwd, dir string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if cwd == "" || cwd == here {
		return nil
	}
	if err := os.Chdir(cwd); err != nil {
		return usage.Errorf("%s: the run was started in %s, which its relative paths need: %v", dir, cwd, err)
	}
	stdout.Message(stdout.Errors(), "relative paths start in "+cwd+", as when the run was started")
	return nil
}

// Fingerprint returns the hash of the values that decide what a run computes, those at their defaults left out.
func Fingerprint(c *configs.Composed) (string, error) {
	return c.Fingerprint(append(record.Watched(), "predict", "eval.cluster", "vars")...)
}

// Alike reports whether a run of one configuration may go on with another.
func Alike(a, b *configs.Composed) bool {
	one, err := a.Fingerprint(record.Where()...)
	other, failed := b.Fingerprint(record.Where()...)
	return err == nil && failed == nil && one == other
}

// Repeats is the environment variable of a run that is repeated for a proof: it tells nobody.
const Repeats = "FULCRUM_REPEATS"

// ExpectedHash is the environment variable by which a sweep tells a job the configuration that it
// was checked with: files that changed since then are noticed.
const ExpectedHash = "FULCRUM_CONFIG_HASH"

// Unchanged refuses a configuration that has changed since the job's sweep was composed.
func Unchanged(c *configs.Composed) error {
	want := os.Getenv(ExpectedHash)
	if want == "" {
		return nil
	}
	hash, err := Fingerprint(c)
	if err != nil || hash == want {
		return err
	}
	return usage.Errorf("the configuration has changed since the sweep was composed: `run resume SWEEP_FOLDER` says what has changed")
}

// HydraValue returns a value of the hydra node as text, resolved.
func HydraValue(c *configs.Composed, key string) (string, error) {
	text, err := c.YAML("all", true, "hydra."+key) // it may lead to keys of the job
	return strings.TrimSuffix(text, "\n"), err
}
