package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/account"
	"fulcrum/reports/page"
)

const SummaryFile = "summary.json"

// States of a run: from its summary, or of a run without one.
const (
	StateDone        = "done"
	StateFailed      = "failed"
	StateInterrupted = "interrupted"
	StatePruned      = "pruned" // stopped early by the sweep's pruner: a result
	StateRunning     = "running"
	StateKilled      = "killed"
)

// Number is a float64 whose JSON says "nan", "inf" and "-inf" where JSON has no number.
type Number float64

func (n Number) MarshalJSON() ([]byte, error) { return AppendNumber(nil, float64(n)), nil }

func (n *Number) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		f, ok := ParseNonFinite(s)
		if !ok {
			return fmt.Errorf("%q is no number", s)
		}
		*n = Number(f)
		return nil
	}
	return json.Unmarshal(data, (*float64)(n))
}

// Summary is summary.json: how a run ended and what it came to.
type Summary struct {
	State       string            `json:"state"`           // done, pruned, failed or interrupted
	Error       string            `json:"error,omitempty"` // why it failed
	Title       string            `json:"title"`           // exp or task, for the report's heading
	Task        string            `json:"task"`
	Command     []string          `json:"command"`   // argv that repeats the run
	Overrides   []string          `json:"overrides"` // as on the command line
	Seed        int64             `json:"seed"`
	Device      string            `json:"device"`
	Threads     int               `json:"threads"`
	Start       string            `json:"start"`        // RFC 3339
	WallSeconds float64           `json:"wall_seconds"` // all attempts together
	Resumes     int               `json:"resumes"`
	Versions    map[string]string `json:"versions"` // fulcrum, go, libtorch, os, cpu, config (hash), …
	Data        DataSummary       `json:"data"`
	Phases      []PhaseSummary    `json:"phases"`
	Account     []account.Of      `json:"account,omitempty"` // of each phase of a finished run
	Best        *BestSummary      `json:"best,omitempty"`
	Evaluations []StageResult     `json:"evaluations"`          // of every stage, with intervals; see Stages
	Claim       string            `json:"claim,omitempty"`      // for which the sealed questions were opened
	Evaluation  any               `json:"evaluation,omitempty"` // of task=evaluate: the official accuracies
	Warnings    []string          `json:"warnings"`             // one sentence each
	Findings    []Finding         `json:"findings"`             // of the doctor and the preflight, in the order of the run
}

// Over reports whether the run has come to its end; one without a summary has not.
func (s *Summary) Over() bool { return s != nil && (s.State == StateDone || s.State == StatePruned) }

// Finding is an event that says what is wrong with a run: its number, its likely cause, the key to change.
type Finding struct {
	Check    string `json:"check"`
	Severity string `json:"severity"` // note, warning or stop
	Message  string `json:"message"`
	Key      string `json:"key,omitempty"`
	Set      string `json:"set,omitempty"` // KEY=VALUE to type
	Value    Number `json:"value"`
	Limit    Number `json:"limit"`
	Phase    string `json:"phase"`
	Epoch    int    `json:"epoch"`
	Step     int    `json:"step"` // within the phase
}

// Warnings returns what a run's report warns of, each once by its name: the warnings and stops of checks, and the warnings of no check,
// which have their first words for a name.
func Warnings(warnings []string, findings []Finding) []Finding {
	var out []Finding
	add := func(f Finding) {
		if !slices.ContainsFunc(out, func(o Finding) bool { return o.Check == f.Check }) {
			out = append(out, f)
		}
	}
	for _, f := range findings {
		if f.Severity == "warning" || f.Severity == "stop" {
			add(f)
		}
	}
	for _, w := range warnings {
		if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Message == w }) {
			add(Finding{Check: firstWords(w), Message: w})
		}
	}
	return out
}

// Warned returns the names of a run's Warnings, nil where it has none.
func Warned(warnings []string, findings []Finding) []string {
	var names []string // nil where there are none
	for _, f := range Warnings(warnings, findings) {
		names = append(names, f.Check)
	}
	return names
}

// firstWords is a sentence up to its first colon, of at most 40 characters.
func firstWords(sentence string) string {
	const most = 40
	words, _, _ := strings.Cut(sentence, ":")
	if runes := []rune(words); len(runes) > most {
		words = string(runes[:most])
		if at := strings.LastIndexByte(words, ' '); at > 0 {
			words = words[:at]
		}
		words += " …"
	}
	return words
}

// Findings returns the events of a run that say what is wrong with it: those with a value. Other events (a
// resume, an early stop) have none.
func (r *Run) Findings() []Finding {
	found := []Finding{}
	for _, e := range r.Events {
		if value, ok := e.Number("value"); ok {
			limit, _ := e.Number("limit")
			found = append(found, Finding{e.Text("event"), e.Text("severity"), e.Text("message"), e.Text("key"), e.Text("set"), Number(value),
				Number(limit), e.Phase, e.Epoch, e.Step})
		}
	}
	return found
}

// DataSummary says what a run was trained and judged on.
type DataSummary struct {
	Name        string            `json:"name"`
	Synthetic   bool              `json:"synthetic"`
	Notice      string            `json:"notice"` // one plain sentence
	Fingerprint string            `json:"fingerprint"`
	Scripts     map[string]string `json:"scripts,omitempty"`      // that give rewards: digests by name
	Counts      map[string]int    `json:"counts"`                 // queries and candidates of each split
	Skipped     map[string]int    `json:"skipped"`                // left-out records by reason
	SkippedAt   map[string]string `json:"skipped_at,omitempty"`   // by reason: where they stand, or the first of them
	UnknownKeys []UnknownKey      `json:"unknown_keys,omitempty"` // of records, that nothing reads
	HeldOut     string            `json:"held_out,omitempty"`     // what left the training pools, in a sentence
	Validated   string            `json:"validated,omitempty"`    // how many validation queries are evaluated, in a sentence; "": all
	LeftOut     string            `json:"left_out,omitempty"`     // standard features that the data lack columns of, in a sentence
	Methods     []MethodSummary   `json:"methods,omitempty"`      // recorded candidates by gen_method, where there are several
	Shots       int               `json:"shots"`
	EvalName    string            `json:"eval_name"`             // of the set that enters no choice
	EvalDigest  string            `json:"eval_digest,omitempty"` // of its questions, whatever is known of them
	EvalSketch  []string          `json:"-"`                     // digest.Sketch of the same
	Sealed      string            `json:"sealed,omitempty"`      // the digest of data.sealed
	Scorer      *ScorerCalls      `json:"scorer,omitempty"`      // of a selector that asks the reader (selector.scorer)
}

// ScorerCalls counts the calls of a reader that give a selector a score of every candidate, each pool once.
type ScorerCalls struct {
	Query    int `json:"query"`    // of the largest pool
	Training int `json:"training"` // for training queries
	Judged   int `json:"judged"`   // for validation and held-out queries
}

// With is what a name of the selector has behind it; "" where no reader is asked.
func (c *ScorerCalls) With() string {
	if c == nil {
		return ""
	}
	return ", with scorer"
}

// Sentence says what the selector asks the reader for; "" for nothing.
func (c *ScorerCalls) Sentence() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("With scorer: the selector reads the reader's own score of each candidate (selector.scorer). That takes up to %s a "+
		"query wherever it selects; here %s for training queries and %s for those that judge it, each pool once.",
		page.Plural(c.Query, "reader call"), page.Thousands(c.Training), page.Thousands(c.Judged))
}

// MethodSummary is what the recorded candidates of one gen_method earn.
type MethodSummary struct {
	Name       string `json:"name"` // "" where the record does not say
	Candidates int    `json:"candidates"`
	Mean       Number `json:"mean"` // reward
}

// UnknownKey is a key that the records of a file hold and nothing reads.
type UnknownKey struct {
	File    string `json:"file"`
	Object  string `json:"object"` // what holds it: record, trajectory, …
	Key     string `json:"key"`
	Nearest string `json:"nearest,omitempty"` // of the keys that are read
	Count   int    `json:"count"`
	First   int    `json:"first"` // line of the first one
}

// PhaseSummary is one finished or stopped phase.
type PhaseSummary struct {
	Name    string            `json:"name"`
	Epochs  int               `json:"epochs"`
	Steps   int               `json:"steps"`
	Calls   int               `json:"reader_calls,omitempty"` // candidates that reader or rewards scored for its steps; recorded ones cost none
	Seconds float64           `json:"seconds"`
	Stopped string            `json:"stopped,omitempty"` // why it ended early
	Final   map[string]Number `json:"final"`             // metrics of its last epoch
}

// BestSummary is what checkpoints/best links to, and why.
type BestSummary struct {
	Metric     string `json:"metric"`
	Mode       string `json:"mode"` // max or min
	Value      Number `json:"value"`
	Phase      string `json:"phase"` // init for the initial policy
	Epoch      int    `json:"epoch"`
	Checkpoint string `json:"checkpoint"`
	Choice     string `json:"choice,omitempty"` // why it is not the highest: within its noise
	Reason     string `json:"reason,omitempty"` // when the rule had to give way
	Other      string `json:"other,omitempty"`  // which epoch another measure would have chosen
}

func (b *BestSummary) Untrained() bool { return b != nil && b.Phase == PolicyInit }

// RuledOut says why the policy that the run began with counts as the best whatever the epochs are worth: none was within
// checkpoint.best.kl_max. "" where that is not so.
func (b *BestSummary) RuledOut() string {
	if b.Untrained() {
		return b.Reason
	}
	return ""
}

// AddRecorded adds what the run's own rows tell, those of earlier attempts included: what each phase came to, which epoch another
// measure would have made the best, the warnings on the way, how often it was resumed. A check of the summary does it again.
func (s *Summary) AddRecorded(run *Run) {
	if s.Best != nil {
		s.Best.Other = run.otherBest(s.Best)
	}
	for _, name := range run.Phases() {
		p := PhaseSummary{Name: name, Final: map[string]Number{}}
		for _, row := range run.Epochs {
			if row.Phase != name {
				continue
			}
			if mean, ok := row.Number("step_seconds"); ok {
				p.Seconds += mean * float64(row.Step-p.Steps)
			}
			if mean, ok := row.Number("reader_calls"); ok {
				p.Calls += int(math.Round(mean * float64(row.Step-p.Steps)))
			}
			p.Epochs, p.Steps = row.Epoch, row.Step
			clear(p.Final)
			for key := range row.Fields {
				if v, ok := row.Number(key); ok {
					p.Final[key] = Number(v)
				}
			}
		}
		if p.Epochs > 0 {
			s.Phases = append(s.Phases, p)
		}
	}
	s.Findings = append(s.Findings, run.Findings()...)
	for _, e := range run.Events {
		if e.Text("event") == eventResume {
			s.Resumes++
		}
		if e.Text("severity") == "warning" {
			s.Warnings = append(s.Warnings, e.Text("message"))
		}
		if event := e.Text("event"); event == "early_stop" || event == "pruned" {
			for i := range s.Phases {
				if s.Phases[i].Name == e.Phase {
					s.Phases[i].Stopped = e.Text("message")
				}
			}
		}
	}
}

// StateOf returns the state of a run: running while a process holds its folder; then what its summary says (ended; "": there is none
// that can be read); killed without one. Whoever goes on with a run removes its summary first. Look at the lock before the summary.
func StateOf(locked bool, ended string) string {
	if locked {
		return StateRunning
	}
	return cmp.Or(ended, StateKilled)
}

// ReadSummary reads summary.json, nil when the run has not ended.
func ReadSummary(dir string) (*Summary, error) {
	var s *Summary
	err := ReadJSON(filepath.Join(dir, SummaryFile), &s)
	return s, err
}

// Where says when a finding was made: before the first step, or in which epoch and step.
func (f Finding) Where() string {
	where := page.Plain(f.Phase)
	if f.Step == 0 && f.Epoch == 0 {
		return strings.TrimSpace("before step 1 " + where)
	}
	if f.Epoch > 0 {
		where += fmt.Sprintf(", epoch %d", f.Epoch)
	}
	if f.Step > 0 {
		where += fmt.Sprintf(", step %d", f.Step)
	}
	return where
}
