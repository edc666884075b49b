package job

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"fulcrum/internal/digest"
	"fulcrum/phases"
	"fulcrum/reports/looks"
	"fulcrum/reports/record"
)

// Recorder writes what phases record to a job's log, and has the plots redrawn after every epoch.
type Recorder struct {
	*Job
	Ask func(query int64) Asked // nil: nothing is known of a query but its id
}

// Asked is what a query asks, for readers of completions.jsonl.
type Asked struct {
	Question, Reference string
	Answers             []string
	Pictures            record.Pictures
}

var _ phases.Recorder = Recorder{}

func (r Recorder) Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error {
	if err := r.Log.Record(kind, phase, epoch, step, globalStep, fields); err != nil {
		return err
	}
	r.measureSystem(phase, globalStep)
	if r.Redraw != nil && kind == record.KindEpoch {
		r.Redraw()
	}
	return nil
}

// RecordEvaluation records what a policy earned on a split: a row of means, and every query's scores for paired comparisons. All
// evaluations are of one split and policy.
func (j *Job) RecordEvaluation(means map[string]any, of ...record.Evaluation) error {
	means["split"], means["policy"] = of[0].Split, of[0].Policy
	if err := j.Log.Record(record.KindEval, "", 0, 0, 0, means); err != nil {
		return err
	}
	for _, e := range of {
		e.Range = j.rangeOf(e.Metric)
		if err := j.Log.Scores(e); err != nil {
			return err
		}
	}
	return nil
}

// look takes a look at held-out questions, and found these scores; a dry run scores none. The jobs of a sweep share theirs, and one that is
// repeated says nothing of the others.
func (j *Job) look(l record.Look, scores any) error {
	if j.Config.DryRun {
		return nil
	}
	owner := cmp.Or(j.Sweep, j.Dir)
	if text, err := json.Marshal(scores); err == nil && scores != nil && owner == j.Dir {
		l.Same = digest.Of([]byte(j.Hash), []byte(j.Data.Fingerprint), text)
	}
	return looks.Take(looks.Path(j.Config.Evidence.Ledger, owner), owner, j.Dir, l, "")
}

// LookAt takes one look at held-out questions that the task has judged itself, by metrics whose comparisons are corrected together. Each
// question is told by its id and its truth.
func (j *Job) LookAt(questions []string, split string, scores any, metrics ...string) error {
	slices.Sort(questions)
	l := record.Look{Split: split, Family: metrics[0], Digest: digest.Of([]byte(strings.Join(questions, "\n"))),
		Sketch: digest.Sketch(questions)}
	for _, l.Metric = range metrics {
		if err := j.look(l, scores); err != nil {
			return err
		}
	}
	return nil
}

// rangeOf returns Evaluation.Range of a metric.
func (j *Job) rangeOf(metric string) *[2]float64 {
	if r, ok := j.Ranges[metric]; ok {
		return &r
	}
	return nil
}

// Mark implements phases.Recorder: a state is saved in a folder that is still this run's.
func (r Recorder) Mark() (rows, evals, completions int, err error) {
	if r.Held != nil {
		if err := r.Held(); err != nil {
			return 0, 0, 0, err
		}
	}
	return r.Log.Mark()
}

// Scores implements phases.Recorder. Whoever scores held-out questions with a policy that was trained, here or before, has looked at them:
// the ledger knows it before the scores are kept.
func (r Recorder) Scores(s phases.Scores) error {
	if record.HeldOut(s.Split) && (s.Policy != record.PolicyInit || r.Config.Init.Checkpoint != nil) {
		l := record.Look{Split: s.Split, Metric: s.Metric, Digest: r.Data.EvalDigest, Sketch: r.Data.EvalSketch}
		if err := r.look(l, nil); err != nil { // what is trained after these scores may differ, by a judge or a reward program
			return err
		}
	}
	return r.Log.Scores(record.Evaluation{Split: s.Split, Policy: s.Policy, Phase: s.Phase, Epoch: s.Epoch, Metric: s.Metric,
		Shots: s.Shots, QueryIDs: s.QueryIDs, Scores: s.Values, ChosenFrom: s.ChosenFrom, Range: r.rangeOf(s.Metric)})
}

func (r Recorder) Completions(phase string, epoch, step int, rows []phases.Completion) error {
	out := make([]record.Completion, len(rows))
	var of Asked
	for i, c := range rows {
		if r.Ask != nil && (i == 0 || c.QueryID != rows[i-1].QueryID) {
			of = r.Ask(c.QueryID)
		}
		out[i] = record.Completion{QueryID: c.QueryID, Question: of.Question, Reference: of.Reference, Answers: of.Answers,
			Pictures: of.Pictures,
			Group:    c.Group, Text: c.Text, Tokens: c.Tokens, Truncated: c.Truncated, Reward: c.Reward, Terms: c.Terms, Advantage: c.Advantage}
	}
	return r.Log.Completions(phase, epoch, step, out)
}
