package sweepreport

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// setting is a setting with what its jobs left.
type setting struct {
	*sweeps.Setting
	runs []*record.Run // by seed: of the jobs that count, where the setting is compared; else nil

	arm       *sweeps.StudyArm // nil: the sweep has no arms
	from      *setting         // the arm whose runs its own start from; nil: fresh weights
	condition *condition
}

// condition is the arms of a sweep under one choice of everything else that was swept.
type condition struct {
	what []string // the other sweeps.Swept overrides, [] where there are none
	arms []*setting
}

// place makes a setting an arm of its condition.
func (v *View) place(s *setting) {
	what := slices.DeleteFunc(slices.Clone(s.Overrides), func(o string) bool { return strings.HasPrefix(o, sweeps.ArmKey+"=") })
	at := slices.IndexFunc(v.conditions, func(c *condition) bool { return slices.Equal(c.what, what) })
	if at < 0 {
		at, v.conditions = len(v.conditions), append(v.conditions, &condition{what: what})
	}
	name := s.Jobs[0].Params[sweeps.ArmKey]
	c := v.conditions[at]
	s.condition, s.arm = c, cmp.Or(v.Opt.Study.Arm(name), &sweeps.StudyArm{Name: name, Label: name})
	s.from = c.arm(s.arm.From)
	c.arms = append(c.arms, s)
}

// arm returns the arm of a name, nil for one without jobs.
func (c *condition) arm(name string) *setting {
	if i := slices.IndexFunc(c.arms, func(s *setting) bool { return s.arm.Name == name }); i >= 0 {
		return c.arms[i]
	}
	return nil
}

// heading names the condition where there are several.
func (c *condition) heading(text string) string {
	if len(c.what) > 0 {
		text += " with " + page.CodeList(c.what)
	}
	return text
}

func (s *setting) label() string {
	if s.arm != nil {
		return s.arm.Label
	}
	return cmp.Or(strings.Join(s.Overrides, ", "), "all seeds")
}

// baseline is the arm whose runs scored a policy without training as this arm is scored. Policies without weights every run scores; the
// untrained weights the arm at the start of the way to this one or, where the way leads to other data, as from two shots to four, the
// first such arm of the same selector with the same baselines. Nil: there is none.
func (v *View) baseline(s *setting, policy string) *setting {
	root := s
	for root.from != nil {
		root = root.from
	}
	switch {
	case policy != record.PolicyInit || len(s.runs) == 0:
		return s
	case v.sameBaselines(root, s):
		return root
	}
	for _, other := range s.condition.arms {
		if other.from == nil && v.sameBaselines(other, s) &&
			reflect.DeepEqual(other.runs[0].Setting("selector"), s.runs[0].Setting("selector")) {
			return other
		}
	}
	return nil
}

// sameBaselines reports whether two arms' policies without weights have the same scores but for rounding, as they have for the same
// questions, shots and rewards.
func (v *View) sameBaselines(a, b *setting) bool {
	if len(a.runs) == 0 || len(b.runs) == 0 {
		return a == b
	}
	for _, policy := range []string{record.PolicyRandom, record.PolicyMajority, record.PolicySimilarity} {
		x, okX := a.runs[0].Score(v.split(), policy, "reward")
		y, okY := b.runs[0].Score(v.split(), policy, "reward")
		if okX != okY || math.Abs(x-y) > 1e-9 {
			return false
		}
	}
	return true
}

// steps are the optimizer steps of one of a setting's runs, and with those of the arms that it starts from.
func (s *setting) steps() (own, all int) {
	if len(s.runs) > 0 {
		own = s.runs[0].LastStep()
	}
	if s.from != nil {
		_, all = s.from.steps()
	}
	return own, own + all
}

// calls are the candidates that the reader scored for the steps of one of a setting's runs, and of the arms that it starts from.
func (s *setting) calls() (n int) {
	if s.from != nil {
		n = s.from.calls()
	}
	if len(s.runs) > 0 && s.runs[0].Summary != nil {
		for _, p := range s.runs[0].Summary.Phases {
			n += p.Calls
		}
	}
	return n
}

// last is the policy that the runs of a setting ended with, as evals.jsonl names it.
func (s *setting) last() string {
	if len(s.runs) == 0 {
		return ""
	}
	if phases := s.runs[0].Phases(); len(phases) > 0 {
		return phases[len(phases)-1]
	}
	return record.PolicyInit // schedule=[]: it scores the checkpoint that it starts from
}

func (s *setting) withSeeds(seeds []int64) []*record.Run {
	return slices.DeleteFunc(slices.Clone(s.runs), func(r *record.Run) bool { return !slices.Contains(seeds, r.Seed()) })
}

func (s *setting) seeds() []int64 { return list.Map(s.runs, (*record.Run).Seed) }

// split is the held-out set's name, or val where there is none.
func (v *View) split() string {
	for _, run := range v.runs()[:min(1, len(v.runs()))] {
		if run.Summary == nil {
			break
		}
		held := run.Summary.Data.EvalName
		if held != "" && slices.ContainsFunc(run.Evaluations, func(e record.Evaluation) bool { return e.Split == held }) {
			return held
		}
	}
	return "val"
}

// score is the metric of a question that names none.
func (v *View) score() string { return scoreOf(v.runs()) }
