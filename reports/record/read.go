package record

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"fulcrum/internal/hostmem"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
)

// Run is what a run folder records. Whatever is not there yet is empty.
type Run struct {
	Dir         string
	Steps       []*Steps // one per phase, in order of appearance
	Epochs      []Row
	EvalRows    []Row // rows of kind eval in metrics.jsonl
	Events      []Row
	Evaluations []Evaluation // evals.jsonl
	Looks       Looks        // looks.json
	Opened      *Opened      // opened.json; nil: nothing was
	Proof       *Proof       // proof.json; nil: nothing was proven
	Summary     *Summary     // nil before the run has ended
	Config      string       // .hydra/config.yaml
	Overrides   []string     // .hydra/overrides.yaml
	Examples    []Example    // examples.json
	Manifest    *Manifest    // nil before the run has ended
	Tree        any
}

// Steps are the step rows of one phase, in columns: a run has a hundred thousand of them.
type Steps struct {
	Phase   string
	Epoch   []int
	Step    []int
	Global  []int
	Time    []float64              // seconds since 1970
	Columns map[string][]float64   // NaN where a row has no such number
	Lists   map[string][][]float64 // nil where a row has no such list
	NaN     map[string][]int       // rows whose number is not a number
}

// Column returns one number per step, NaN where a step has none, or nil when no step has it.
func (s *Steps) Column(name string) []float64 { return s.Columns[name] }

const examplesFile = "examples.json"

// Example shows what a policy chose for a question before and after training.
type Example struct {
	Question     string     `json:"question"`
	Answer       string     `json:"answer"`
	Pictures     Pictures   `json:"pictures,omitempty"` // of the question, small
	Before       []ItemText `json:"before"`
	After        []ItemText `json:"after"`
	RewardBefore float64    `json:"reward_before"`
	RewardAfter  float64    `json:"reward_after"`
}

// ItemText is a demonstration as a reader sees it.
type ItemText struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// ReadRun reads a run folder, finished or not. A torn last line of metrics.jsonl is left out; any
// other damage is an error that names file and line.
func ReadRun(dir string) (*Run, error) {
	run := &Run{Dir: dir}
	if _, err := run.ReadRows(0); err != nil {
		return nil, err
	}
	if err := run.ReadRest(); err != nil {
		return nil, err
	}
	return run, nil
}

// ReadRows adds the whole lines of metrics.jsonl from offset on and returns where it stopped.
func (r *Run) ReadRows(offset int64) (int64, error) { return r.readRows(offset, nil) }

// ReadEpochs adds the rows of metrics.jsonl without those of steps, which are nearly all.
func (r *Run) ReadEpochs() error {
	_, err := r.readRows(0, []byte(`{"kind":"`+KindStep+`"`))
	return err
}

// readRows is ReadRows without the lines that begin with skip.
func (r *Run) readRows(offset int64, skip []byte) (int64, error) {
	path := filepath.Join(r.Dir, MetricsFile)
	return readLines(path, offset, func(n int, at int64, line []byte) error {
		if skip != nil && bytes.HasPrefix(line, skip) {
			return nil
		}
		row, err := ParseRow(line)
		if err != nil {
			return fmt.Errorf("%s: line %d after byte %d is damaged: %w", path, n, at, err)
		}
		r.add(row)
		return nil
	})
}

func (r *Run) add(row Row) {
	switch row.Kind {
	case KindStep:
		r.steps(row.Phase).Add(row)
	case KindEpoch:
		r.Epochs = append(r.Epochs, row)
	case KindEval:
		r.EvalRows = append(r.EvalRows, row)
	case KindEvent:
		r.Events = append(r.Events, row)
	}
}

func (r *Run) steps(phase string) *Steps {
	if s := r.StepsOf(phase); s != nil {
		return s
	}
	s := NewSteps(phase)
	r.Steps = append(r.Steps, s)
	return s
}

// NewSteps returns the steps of a phase without a row yet.
func NewSteps(phase string) *Steps {
	return &Steps{Phase: phase, Columns: map[string][]float64{}, Lists: map[string][][]float64{}, NaN: map[string][]int{}}
}

// StepsOf returns the steps of a phase, nil when there are none.
func (r *Run) StepsOf(phase string) *Steps {
	for _, s := range r.Steps {
		if s.Phase == phase {
			return s
		}
	}
	return nil
}

func (s *Steps) Add(row Row) {
	n := len(s.Step)
	s.Epoch = append(s.Epoch, row.Epoch)
	s.Step = append(s.Step, row.Step)
	s.Global = append(s.Global, row.GlobalStep)
	s.Time = append(s.Time, row.Time)
	for name := range row.Fields {
		if x, ok := row.Number(name); ok {
			before := slices.Repeat([]float64{math.NaN()}, n-len(s.Columns[name])) // rows before this one may have no such field
			if s.Columns[name] = append(append(s.Columns[name], before...), x); math.IsNaN(x) {
				s.NaN[name] = append(s.NaN[name], n)
			}
		} else if list := row.Numbers(name); list != nil {
			column := s.Lists[name]
			s.Lists[name] = append(append(column, make([][]float64, n-len(column))...), list)
		}
	}
	for name, column := range s.Columns {
		if len(column) == n {
			s.Columns[name] = append(column, math.NaN())
		}
	}
	for name, column := range s.Lists {
		if len(column) == n {
			s.Lists[name] = append(column, nil)
		}
	}
}

// ReadRest reads the files that are written whole.
func (r *Run) ReadRest() error {
	var errs [5]error
	r.Evaluations, errs[0] = ReadEvals(r.Dir)
	r.Looks, errs[1] = ReadLooks(r.Dir)
	r.Opened, errs[2] = ReadOpened(r.Dir)
	r.Summary, errs[3] = ReadSummary(r.Dir)
	r.Manifest, errs[4] = readManifest(r.Dir)
	return cmp.Or(cmp.Or(errs[:]...), r.ReadConfig(), ReadJSON(filepath.Join(r.Dir, examplesFile), &r.Examples),
		ReadJSON(filepath.Join(r.Dir, ProofFile), &r.Proof))
}

// ReadConfig reads the configuration that the run was composed to, and its overrides.
func (r *Run) ReadConfig() error {
	var err error
	if r.Config, err = readYAML(filepath.Join(r.Dir, ".hydra", "config.yaml"), &r.Tree); err != nil {
		return err
	}
	var resolved map[string]any
	if _, err = readYAML(filepath.Join(r.Dir, ResolvedFile), &resolved); err != nil {
		return err
	}
	if len(resolved) > 0 {
		r.Tree = overlay(r.Tree, resolved)
	}
	r.Overrides, err = Overrides(r.Dir)
	return err
}

// Overrides returns the overrides of a run folder's start; empty for a folder without their file.
func Overrides(dir string) (overrides []string, err error) {
	_, err = readYAML(filepath.Join(dir, ".hydra", "overrides.yaml"), &overrides)
	return overrides, err
}

// ExperimentOf returns the experiment that overrides choose, exp=NAME; "" without one.
func ExperimentOf(overrides []string) (name string) {
	for _, o := range overrides {
		if chosen, ok := strings.CutPrefix(o, "exp="); ok {
			name = chosen
		}
	}
	return name
}

// readIfThere reads a file. One that is absent is nil.
func readIfThere(path string) ([]byte, error) {
	data, err := regular.ReadDocument(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// readYAML reads a YAML file into v and returns its text. An absent file leaves v as it is.
func readYAML(path string, v any) (string, error) {
	data, err := readIfThere(path)
	if err != nil {
		return "", err
	}
	if err := yaml.Unmarshal(data, v); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return string(data), nil
}

// Setting returns a value of the run's config by its path, nil when it is absent or null.
func (r *Run) Setting(path ...string) any {
	node := r.Tree
	for _, key := range path {
		section, ok := node.(map[string]any)
		if !ok {
			return nil
		}
		node = section[key]
	}
	return node
}

// SettingNumber returns a number of the run's config.
func (r *Run) SettingNumber(path ...string) (float64, bool) {
	switch v := r.Setting(path...).(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Phases returns the phases that have left a step or an epoch, in order of appearance.
func (r *Run) Phases() []string {
	return list.Unique(slices.Concat(list.Map(r.Steps, func(s *Steps) string { return s.Phase }),
		list.Map(r.Epochs, func(e Row) string { return e.Phase })))
}

// Resumes counts how often the run was resumed.
func (r *Run) Resumes() int {
	return list.Count(r.Events, func(e Row) bool { return e.Text("event") == eventResume })
}

// EachLine calls do with every line of a file; an absent file has none, a torn last line is left out.
func EachLine(path string, do func(line []byte) error) error {
	_, err := readLines(path, 0, func(n int, _ int64, line []byte) error {
		if err := do(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return fmt.Errorf("%s:%d: damaged line: %w", path, n, err)
		}
		return nil
	})
	return err
}

// readLines calls do with every whole line of a file from byte offset on: its number, counted from 1 there, the byte at which it
// begins, and its text with the line end. It returns where the last one that do has taken ends. One line is held at a time: logs
// of completions have gigabytes.
func readLines(path string, offset int64, do func(n int, at int64, line []byte) error) (end int64, err error) {
	f, err := regular.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return offset, nil
	}
	if err != nil {
		return offset, err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return offset, err
	}
	in := bufio.NewReaderSize(f, 1<<16)
	for n := 1; ; n++ {
		line, err := WholeLine(in, maxLine)
		if errors.Is(err, io.EOF) {
			return offset, nil
		}
		if errors.Is(err, errLongLine) {
			return offset, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if err == nil {
			err = do(n, offset, line)
		}
		if err != nil {
			return offset, err
		}
		offset += int64(len(line))
	}
}

// maxLine is what a line may have, in bytes: one of evals.jsonl has the scores of all questions, millions at most.
const maxLine = 4 * regular.Document

var errLongLine = errors.New("this is no file of rows")

// WholeLine is in.ReadBytes('\n'), for lines of at most so many bytes.
func WholeLine(in *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > most {
			return nil, fmt.Errorf("a line of more than %s: %w", hostmem.Size(float64(most)), errLongLine)
		}
	}
}

// EachRow calls do with every whole row of metrics.jsonl, as EachLine does.
func EachRow(dir string, do func(Row) error) error {
	return EachLine(filepath.Join(dir, MetricsFile), func(line []byte) error {
		row, err := ParseRow(line)
		if err != nil {
			return err
		}
		return do(row)
	})
}

// EachJSON calls do with every line of a file of JSON values, as EachLine does.
func EachJSON[T any](path string, do func(T) error) error {
	return EachLine(path, func(line []byte) error {
		var v T
		if err := jsonwords.Unmarshal(line, &v); err != nil {
			return err
		}
		return do(v)
	})
}

// ReadJSON reads path into v; an absent file leaves v as it is.
func ReadJSON(path string, v any) error {
	data, err := readIfThere(path)
	if err != nil || data == nil {
		return err
	}
	if err := jsonwords.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// LastStep is the number of optimizer steps that the run took, all phases together.
func (r *Run) LastStep() int {
	last := 0
	for _, s := range r.Spans() {
		last = max(last, int(s.To))
	}
	return last
}
