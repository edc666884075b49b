package record

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
)

// Answers reports whether the run's policy writes text: completions have lengths, selections have none.
func (r *Run) Answers() bool {
	has := func(rows []Row) bool {
		return slices.ContainsFunc(rows, func(row Row) bool {
			_, ok := row.Number("completion_length")
			return ok
		})
	}
	return slices.ContainsFunc(r.Steps, func(s *Steps) bool { return s.Column("completion_length") != nil }) || has(r.Epochs) ||
		has(r.EvalRows)
}

// Wording returns what to call a thing: of a run whose policy selects examples, or of one that writes.
func (r *Run) Wording(selects, writes string) string {
	if r.Answers() {
		return writes
	}
	return selects
}

// InItsWords calls the candidates of a sentence that knows no policy what they are in this run, and the questions and answers where a
// seq2seq policy turns texts into others.
func (r *Run) InItsWords(text string) string {
	if r.Setting("policy") == "seq2seq" {
		text = strings.NewReplacer("question", "text", "Question", "Text", "answer", "output", "Answer", "Output").Replace(text)
	}
	return strings.ReplaceAll(text, "candidate", r.Wording("candidate", "completion"))
}

// Seed is the run's; 0 where its config names none.
func (r *Run) Seed() int64 {
	seed, _ := r.SettingNumber("seed")
	return int64(seed)
}

// otherBest says which epoch is ahead by another measure on the validation queries: the reward, or the loss where the reward
// decided. "" where it is the same one, or where nothing else was measured.
func (r *Run) otherBest(b *BestSummary) string {
	klMax, bounded := r.SettingNumber("checkpoint", "best", "kl_max")
	for _, name := range []string{"val_reward", "val_recorded_reward", "val_loss"} {
		own, ok := r.Score("val", PolicyInit, strings.TrimPrefix(name, "val_"))
		if name == b.Metric || !ok {
			continue
		}
		best, where := own, "the initial policy"
		for _, e := range r.Epochs {
			x, ok := e.Number(name)
			kl, _ := e.Number("val_kl")
			if !ok || bounded && kl > klMax {
				continue
			}
			if e.Phase == b.Phase && e.Epoch == b.Epoch {
				own = x
			}
			if x > best && name != "val_loss" || x < best && name == "val_loss" {
				best, where = x, fmt.Sprintf("%s epoch %d", e.Phase, e.Epoch)
			}
		}
		if best == own {
			return ""
		}
		return fmt.Sprintf("by checkpoint.best.metric=%s %s is ahead: %s against %s", name, where, page.Sig(best, 4), page.Sig(own, 4))
	}
	return ""
}

func (s *Steps) Globals() []float64 {
	return list.Map(s.Global, func(g int) float64 { return float64(g) })
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

type Span struct {
	Name     string
	From, To float64
}
