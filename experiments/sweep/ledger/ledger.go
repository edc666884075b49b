// Package ledger stores a sweep: its jobs with their overrides, states and results, in lines of JSON at the end of which each change is
// written. One process writes, the sweep's controller, which holds the folder's lock; others read. What is written together counts once
// the line with its digest is there, so that a kill at any instruction leaves a whole ledger.
package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// FileName is the ledger's name in a sweep folder: what makes a folder a sweep.
const FileName = "sweep.jsonl"

// version of the lines.
const version = 4

// Sweep is what holds for all jobs.
type Sweep struct {
	Command     []string            `json:"command"`   // argv that repeats the sweep
	Flags       []string            `json:"flags"`     // --config-path and the like, for every job
	Overrides   []string            `json:"overrides"` // as typed, with their sweeps
	Cwd         string              `json:"cwd"`       // where it was started
	Sweeper     string              `json:"sweeper"`   // hydra/sweeper
	Launcher    string              `json:"launcher"`  // hydra/launcher
	Created     time.Time           `json:"created"`
	Program     string              `json:"program"` // version of the program
	Pruner      string              `json:"pruner"`
	Constraints []string            `json:"constraints"`
	Dimensions  []configs.Dimension `json:"dimensions"`      // what is swept
	Objectives  []sweeps.Objective  `json:"objectives"`      // those that have a name
	Fingerprint string              `json:"fingerprint"`     // of the primary configuration
	Generation  int                 `json:"generation"`      // of the configuration files
	Trials      int                 `json:"trials"`          // that a search makes; 0 = the jobs are known
	Study       *sweeps.Study       `json:"study,omitempty"` // its arms and what it asks; nil: no study
	Ask         *sweeps.Ask         `json:"ask,omitempty"`   // the rule of a study that grows by seeds; nil: it does not
}

// Job is what is known of a job.
type Job struct {
	Num         int                      `json:"num"`
	Overrides   []string                 `json:"overrides"`   // as in .hydra/overrides.yaml
	Params      []string                 `json:"params"`      // the swept values, in the order of the sweep's dimensions
	Dir         string                   `json:"dir"`         // run folder, relative to the sweep's
	Fingerprint string                   `json:"fingerprint"` // of the composed configuration that the job runs with
	Generation  int                      `json:"generation"`  // of the configuration files: 1, and one more for each change that was accepted
	State       string                   `json:"state"`       // queued running done failed pruned lost skipped
	Attempts    int                      `json:"attempts"`    // tries that have begun
	Failures    int                      `json:"failures"`    // tries that failed, since the job was last asked for
	ExitCode    *int                     `json:"exit_code"`   // of the last try that has ended
	Cause       string                   `json:"cause"`       // of a failure
	Tail        []string                 `json:"tail"`        // last lines of the log
	Objectives  []Objective              `json:"objectives"`  // nil when unknown
	Violation   record.Number            `json:"violation"`   // of the constraints, 0 = feasible
	Metrics     map[string]record.Number `json:"metrics"`     // of the best checkpoint
	Epochs      int                      `json:"epochs"`      // that were run
	Seconds     float64                  `json:"seconds"`     // wall time of all tries
	Arm         string                   `json:"arm"`         // of a study
	Parent      *int                     `json:"parent"`      // number of the job that must be done before this one starts; nil = none
}

// Objective is one number that a job is judged by.
type Objective struct {
	Name     string        `json:"name"` // of the metric
	Value    record.Number `json:"value"`
	Minimize bool          `json:"minimize"` // less is better
}

// Loss returns the value with the sign that makes less better; NaN is worst.
func (o Objective) Loss() float64 {
	v := float64(o.Value)
	switch {
	case math.IsNaN(v):
		return math.Inf(1)
	case o.Minimize:
		return v
	}
	return -v
}

// line is a line of the file. Only one of its fields is set.
type line struct {
	Version int    `json:"version,omitempty"` // the first
	Sweep   *Sweep `json:"sweep,omitempty"`   // the newest holds
	Job     *Job   `json:"job,omitempty"`     // the newest of its number holds
	Digest  string `json:"sha256,omitempty"`  // of the digest before and all lines behind that: they were written together
}

// contents is what a file holds.
type contents struct {
	sweep Sweep
	jobs  []Job
	size  int64  // in bytes, of what was written whole
	last  string // digest in it
}

// DamageError says that the ledger does not hold what was written to it.
type DamageError struct{ What string }

func (e *DamageError) Error() string {
	return "the ledger is damaged: " + e.What +
		" is not as it was written; put back a copy of the file (the jobs' own folders hold their results)"
}

// Ledger is an open ledger.
type Ledger struct {
	file *os.File
	path string
	size int64
	last string

	sweep Sweep
	nums  map[int]bool // of the jobs
	dirs  map[string]bool
}

// Exists reports whether dir is a sweep folder.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, FileName))
	return err == nil
}

// Create makes the ledger of a new sweep with its first jobs, all queued. It appears whole or not at
// all: a kill on the way leaves no sweep.
func Create(dir string, s Sweep, jobs []Job) (*Ledger, error) {
	path, building := filepath.Join(dir, FileName), filepath.Join(dir, "."+FileName+".new")
	file, err := regular.OpenFile(building, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	l := &Ledger{file: file, path: path, sweep: s, nums: map[int]bool{}, dirs: map[string]bool{}}
	if err = l.add([]line{{Version: version}, {Sweep: &s}}, jobs); err == nil {
		err = cmp.Or(os.Rename(building, path), atomicfile.SyncDir(dir))
	}
	if err != nil {
		file.Close()
		os.Remove(building)
		return nil, l.err(err)
	}
	return l, nil
}

// Open opens the ledger of a sweep folder for its controller.
func Open(dir string) (*Ledger, error) {
	path := filepath.Join(dir, FileName)
	file, err := regular.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	l := &Ledger{file: file, path: path, nums: map[int]bool{}, dirs: map[string]bool{}}
	c, err := read(file)
	if err != nil {
		file.Close()
		return nil, l.err(err)
	}
	l.size, l.last, l.sweep = c.size, c.last, c.sweep
	l.know(c.jobs)
	return l, nil
}

// Load reads a sweep and its jobs, by their numbers, at one moment; a controller may be writing. A line that is not what was written is a
// DamageError.
func Load(dir string) (Sweep, []Job, error) {
	path := filepath.Join(dir, FileName)
	file, err := regular.Open(path)
	if err != nil {
		return Sweep{}, nil, err
	}
	defer file.Close()
	c, err := read(file)
	if err != nil {
		return Sweep{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	return c.sweep, c.jobs, nil
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }

// Sweep returns what holds for all jobs.
func (l *Ledger) Sweep() Sweep { return l.sweep }

// Jobs returns all jobs in the order of their numbers.
func (l *Ledger) Jobs() ([]Job, error) {
	c, err := read(io.NewSectionReader(l.file, 0, l.size))
	return c.jobs, l.err(err)
}

// SetSweep replaces what holds for all jobs: changed configurations were accepted.
func (l *Ledger) SetSweep(s Sweep) error {
	err := l.write(line{Sweep: &s})
	if err == nil {
		l.sweep = s
	}
	return l.err(err)
}

// Add appends jobs together, in the state they have ("" is queued).
func (l *Ledger) Add(jobs ...Job) error { return l.err(l.add(nil, jobs)) }

func (l *Ledger) add(lines []line, jobs []Job) error {
	nums, dirs := map[int]bool{}, map[string]bool{}
	for _, j := range jobs {
		if l.nums[j.Num] || l.dirs[j.Dir] || nums[j.Num] || dirs[j.Dir] {
			return fmt.Errorf("job %d (folder %s): another job has its number or its folder", j.Num, j.Dir)
		}
		nums[j.Num], dirs[j.Dir] = true, true
		j.State, j.Generation = cmp.Or(j.State, launcher.Queued), max(j.Generation, 1)
		lines = append(lines, lineOf(j))
	}
	err := l.write(lines...)
	if err == nil {
		l.know(jobs)
	}
	return err
}

// know notes the numbers and folders of jobs that are written.
func (l *Ledger) know(jobs []Job) {
	for _, j := range jobs {
		l.nums[j.Num], l.dirs[j.Dir] = true, true
	}
}

// Update writes jobs anew, together.
func (l *Ledger) Update(jobs ...Job) error {
	var lines []line
	for _, j := range jobs {
		if !l.nums[j.Num] {
			return l.err(fmt.Errorf("job %d is not in the ledger", j.Num))
		}
		lines = append(lines, lineOf(j))
	}
	return l.err(l.write(lines...))
}

func lineOf(j Job) line {
	if j.Metrics == nil { // {} in the file, not null
		j.Metrics = map[string]record.Number{}
	}
	return line{Job: &j}
}

// write appends lines and their digest, and waits until the disk has them.
func (l *Ledger) write(lines ...line) error {
	if len(lines) == 0 {
		return nil
	}
	var text []byte
	for _, n := range lines {
		one, err := jsonwords.Marshal(n)
		if err != nil {
			return err
		}
		text = append(append(text, one...), '\n')
	}
	sum := digest.Of([]byte(l.last), text)
	text = fmt.Appendf(text, "{\"sha256\":%q}\n", sum)
	err := l.file.Truncate(l.size) // of what a kill or a full disk has cut short
	if err == nil {
		if _, err = l.file.WriteAt(text, l.size); err == nil {
			err = l.file.Sync()
		}
	}
	if err == nil {
		l.size, l.last = l.size+int64(len(text)), sum
	}
	return err
}

// longest is how long a line may be, in bytes: no device or damaged file fills the memory.
const longest = 16 << 20

// read reads a ledger up to the last digest. Lines behind it are of a writer at work, or killed.
func read(from io.Reader) (c contents, err error) {
	in := bufio.NewReaderSize(from, 1<<16)
	var text []byte // since the last digest
	var lines []line
	at, jobs := 0, map[int]Job{}
	for ; ; at++ {
		if next, _ := in.Peek(1); bytes.Equal(next, []byte{0}) { // what a power cut leaves is no line
			break
		}
		one, err := record.WholeLine(in, longest)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c, err
		}
		var n line
		err = jsonwords.Unmarshal(one, &n)
		switch {
		case at > 0:
		case err != nil || n.Version == 0:
			return c, errors.New("not a sweep's ledger, or a damaged one: its first line names no version")
		case n.Version != version:
			return c, fmt.Errorf("ledger version %d: this program knows version %d", n.Version, version)
		}
		if n.Digest == "" {
			text, lines = append(text, one...), append(lines, n)
			continue
		}
		if sum := digest.Of([]byte(c.last), text); n.Digest != sum || err != nil {
			return c, &DamageError{about(lines, at)}
		}
		for _, n := range lines {
			if n.Sweep != nil {
				c.sweep = *n.Sweep
			}
			if n.Job != nil {
				jobs[n.Job.Num] = *n.Job
			}
		}
		c.size, c.last = c.size+int64(len(text)+len(one)), n.Digest
		text, lines = text[:0], lines[:0]
	}
	if c.last == "" {
		return c, errors.New("not a sweep's ledger, or a damaged one: it ends before its first digest")
	}
	c.jobs = slices.SortedFunc(maps.Values(jobs), func(a, b Job) int { return a.Num - b.Num })
	return c, nil
}

// about names the lines before number at, from 0: the job, where they are of one.
func about(lines []line, at int) string {
	if len(lines) == 1 && lines[0].Job != nil {
		return fmt.Sprintf("job %d (line %d)", lines[0].Job.Num, at)
	}
	return fmt.Sprintf("one of the lines %d to %d", at-len(lines)+1, at+1)
}

func (l *Ledger) err(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", l.path, err)
}
