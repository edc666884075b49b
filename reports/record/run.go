package record

import (
	"math"
	"slices"
	"strings"
)

// Answers reports whether the run's policy writes text: completions have lengths, selections have none.
func (r *Run) Answers() bool {
	has := func(rows []Row) bool {
		return slices.ContainsFunc(rows, func(row Row) bool {
			_, ok := row.Number("completion_length")
			return ok
		})
	}
	return slices.ContainsFunc(r.Steps, func(s *Steps) bool { return s.Column("completion_length") != nil }) || has(r.Epochs) || has(r.EvalRows)
}

// Wording returns what to call a thing: of a run whose policy selects examples, or of one that writes.
func (r *Run) Wording(selects, writes string) string {
	if r.Answers() {
		return writes
	}
	return selects
}

// InItsWords calls the candidates of a sentence that knows no policy what they are in this run.
func (r *Run) InItsWords(text string) string {
	return strings.ReplaceAll(text, "candidate", r.Wording("candidate", "completion"))
}

// Seed is the run's; 0 where its config names none.
func (r *Run) Seed() int64 {
	seed, _ := r.SettingNumber("seed")
	return int64(seed)
}

// Caption says below a figure how to read it.
func (r *Run) Caption(name string) string {
	switch name {
	case "reward", "accuracy":
		return "Dashed lines are baselines on the same validation questions; the ring marks the best checkpoint. Moves smaller than the intervals of the results table are noise."
	case "sampled_reward":
		return "What the groups earn that a step learns from. Where the spread within groups falls to 0, there is nothing left to learn from."
	case "points":
		return "Where the negative points of sampled completions fall. More of them in the confusion region is what the reward asks for; points on the object cost."
	case "completions":
		return "Lengths of sampled and of greedy answers. A growing share that is cut says that the limit is too low, or that the policy has stopped ending its answers."
	case "losses":
		return "The training losses of different phases are different quantities. A validation loss that rises while the training loss falls is the mark of overfitting."
	case "kl":
		return "How far the policy has moved from its reference. Within the band β rests; it grows above and shrinks below."
	case "ratio":
		return "How much more likely the policy makes what a step learns from than the old policy did. A ratio that has left the clip range no longer pulls further that way."
	case "schedules":
		return "The learning rate, and where a phase has one the temperature, in each step."
	case "advantages":
		return "Advantages of what a step learns from. A histogram that narrows around 0 says that the groups have become alike."
	case "signal":
		return "The share of groups whose rewards differ: the others teach nothing."
	case "grad_norm":
		return "The size of the gradient before it is clipped. Spikes are steps that one batch dominates."
	}
	return ""
}

// ScoreBefore is the validation score of what a phase was given: the evaluation at the end of the phase before, or
// of the initial policy.
func (r *Run) ScoreBefore(phase, metric string) (float64, bool) {
	before := PolicyInit
	for _, name := range r.Phases() {
		if name == phase {
			break
		}
		before = name
	}
	return r.Score("val", before, metric)
}

// EpochOf is the number of the i-th epoch that a phase has recorded.
func (r *Run) EpochOf(phase string, i int) int {
	for _, e := range r.Epochs {
		if e.Phase == phase {
			if i == 0 {
				return e.Epoch
			}
			i--
		}
	}
	return 0
}

func (s *Steps) Globals() []float64 {
	x := make([]float64, len(s.Global))
	for i, g := range s.Global {
		x[i] = float64(g)
	}
	return x
}

// EpochSeries returns an epoch metric over global steps, for the phase given or ("") for all.
func (r *Run) EpochSeries(phase, name string) (x, y []float64) {
	for _, e := range r.Epochs {
		if phase != "" && e.Phase != phase {
			continue
		}
		if v, ok := e.Number(name); ok {
			x, y = append(x, float64(e.GlobalStep)), append(y, v)
		}
	}
	return
}

// Spans returns where each phase lies: from the step before its first to its last.
func (r *Run) Spans() []Span {
	var spans []Span
	for _, phase := range r.Phases() {
		from, to := math.Inf(1), math.Inf(-1)
		if s := r.StepsOf(phase); s != nil {
			from, to = float64(s.Global[0]-1), float64(s.Global[len(s.Global)-1])
		}
		for _, e := range r.Epochs {
			if e.Phase == phase {
				from, to = min(from, float64(e.GlobalStep)), max(to, float64(e.GlobalStep))
			}
		}
		spans = append(spans, Span{phase, from, to})
	}
	return spans
}

// Score returns the mean of a policy's last evaluation on a split, per query where that is recorded.
func (r *Run) Score(split, policy, metric string) (float64, bool) {
	for i := len(r.Evaluations) - 1; i >= 0; i-- {
		if e := r.Evaluations[i]; e.Split == split && e.Policy == policy && e.Metric == metric && len(e.Scores) > 0 {
			return e.Mean(), true
		}
	}
	for i := len(r.EvalRows) - 1; i >= 0; i-- {
		if e := r.EvalRows[i]; e.Text("split") == split && e.Text("policy") == policy {
			if v, ok := e.Number(metric); ok {
				return v, true
			}
		}
	}
	return 0, false
}

// StepAt is the optimizer step at which an evaluated policy was saved, -1 where that is not recorded.
func (r *Run) StepAt(e Evaluation) int {
	if e.Phase == PolicyInit || e.Phase == "" {
		return 0
	}
	for _, epoch := range r.Epochs {
		if epoch.Phase == e.Phase && epoch.Epoch == e.Epoch {
			return epoch.GlobalStep
		}
	}
	return -1
}

// Span is a phase on the horizontal axis.
type Span struct {
	Name     string
	From, To float64
}
