package sweepreport

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// Study is what a sweep of arms asks: which settings it has, and what is to be known of them.
type Study struct {
	Arms      []StudyArm      `json:"arms"` // an arm behind the one that it starts from
	Questions []StudyQuestion `json:"questions"`
}

// StudyArm is one setting of a study.
type StudyArm struct {
	Name       string   `json:"name"`
	Label      string   `json:"label"` // what readers see
	From       string   `json:"from"`  // arm whose run of the same seed it starts from; "" = fresh weights
	Checkpoint string   `json:"checkpoint"`
	As         string   `json:"as,omitempty"` // key that names the checkpoint; "" = init.checkpoint
	Overrides  []string `json:"overrides"`
}

// StudyQuestion is a comparison that was planned before the runs.
type StudyQuestion struct {
	Ask     string `json:"ask"`
	Arm     string `json:"arm"`
	Against string `json:"against"` // another arm, or one of StudyBaselines
	Split   string `json:"split"`   // "" = the held-out set, else val
	Metric  string `json:"metric"`
}

// StudyBaselines are the policies that every run of a study scores besides its own.
func StudyBaselines() []string {
	return []string{record.PolicyInit, record.PolicyRandom, record.PolicySimilarity, record.PolicyMajority, record.PolicyBestBeam,
		record.PolicyOracle}
}

// Arm returns the arm of a name, nil for none.
func (s *Study) Arm(name string) *StudyArm {
	if i := slices.IndexFunc(s.Arms, func(a StudyArm) bool { return a.Name == name }); i >= 0 {
		return &s.Arms[i]
	}
	return nil
}

// ArmKey is the swept key, in Job.Params, that says which arm a job is.
const ArmKey = "arm"

// studySetting is the arms under one choice of everything else that was swept.
type studySetting struct {
	what []string // the other swept overrides, [] where there are none
	arms []*armRuns
}

// armRuns is an arm with what its runs left.
type armRuns struct {
	StudyArm
	setting *studySetting
	from    *armRuns
	jobs    []Job         // by number
	runs    []*record.Run // of the jobs that are done, by seed
}

// readArms reads the runs of a study's arms and answers its questions. What cannot be read becomes a note of the report.
func (v *View) readArms() {
	what := func(j Job) []string {
		return slices.DeleteFunc(v.own(j), func(o string) bool { return strings.HasPrefix(o, ArmKey+"=") || isSeed(o) })
	}
	for _, jobs := range stats.GroupBy(v.byNumber, func(j Job) string { return strings.Join(what(j), "\x00") }) {
		s := &studySetting{what: what(jobs[0])}
		for _, arm := range v.opt.Study.Arms {
			s.arms = append(s.arms, &armRuns{StudyArm: arm, setting: s, from: s.arm(arm.From)})
		}
		v.armSettings = append(v.armSettings, s)
		for _, j := range jobs {
			if a := s.arm(j.Params[ArmKey]); a != nil {
				if err := a.add(j); err != nil { // its arm then has a seed less
					v.note(errors.New(v.within(fmt.Sprintf("job %d: %v", j.Number, err))))
				}
			}
		}
	}
	v.answer()
}

// arms returns the arms of all settings.
func (v *View) arms() []*armRuns {
	var out []*armRuns
	for _, s := range v.armSettings {
		out = append(out, s.arms...)
	}
	return out
}

// runs returns the finished runs of all arms.
func (v *View) runs() []*record.Run {
	var out []*record.Run
	for _, a := range v.arms() {
		out = append(out, a.runs...)
	}
	return out
}

// arm returns the arm of a name, nil for none.
func (s *studySetting) arm(name string) *armRuns {
	if i := slices.IndexFunc(s.arms, func(a *armRuns) bool { return a.Name == name }); i >= 0 {
		return s.arms[i]
	}
	return nil
}

// add takes a job, and when it is done its run.
func (a *armRuns) add(j Job) error {
	a.jobs = append(a.jobs, j)
	if j.State != record.StateDone {
		return nil
	}
	run, err := record.ReadRun(j.Dir)
	if err != nil {
		return err
	}
	if _, ok := run.SettingNumber("seed"); !ok || run.Summary == nil {
		return fmt.Errorf("%s: the config names no seed, or there is no %s", j.Dir, record.SummaryFile)
	}
	a.runs = append(a.runs, run)
	slices.SortStableFunc(a.runs, func(x, y *record.Run) int { return cmp.Compare(x.Seed(), y.Seed()) })
	return nil
}

// root is the arm at the start of the way to this one: its initial policy is untrained.
func (a *armRuns) root() *armRuns {
	for a.from != nil {
		a = a.from
	}
	return a
}

// steps are the optimizer steps of one of its runs, and with those of the arms that it starts from.
func (a *armRuns) steps() (own, all int) {
	if len(a.runs) > 0 {
		own = a.runs[0].LastStep()
	}
	if a.from != nil {
		_, all = a.from.steps()
	}
	return own, own + all
}

// last is the policy that the runs of an arm ended with, as evals.jsonl names it.
func (a *armRuns) last() string {
	if len(a.runs) == 0 {
		return ""
	}
	phases := a.runs[0].Phases()
	if len(phases) == 0 {
		return ""
	}
	return phases[len(phases)-1]
}

// withSeeds are the runs of some seeds.
func (a *armRuns) withSeeds(seeds []int64) []*record.Run {
	return slices.DeleteFunc(slices.Clone(a.runs), func(r *record.Run) bool { return !slices.Contains(seeds, r.Seed()) })
}

func (a *armRuns) seeds() []int64 {
	var out []int64
	for _, r := range a.runs {
		out = append(out, r.Seed())
	}
	return out
}

// first is any finished run of the study, nil for none.
func (v *View) first() *record.Run {
	if runs := v.runs(); len(runs) > 0 {
		return runs[0]
	}
	return nil
}

// split is the held-out set's name, or val where there is none.
func (v *View) split() string {
	run := v.first()
	if run == nil {
		return "val"
	}
	held := run.Summary.Data.EvalName
	if held != "" && slices.ContainsFunc(run.Evaluations, func(e record.Evaluation) bool { return e.Split == held }) {
		return held
	}
	return "val"
}
