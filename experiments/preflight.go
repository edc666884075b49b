package experiments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"fulcrum/beamdata"
	"fulcrum/beamdata/audit"
	"fulcrum/internal/stdout"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/grpo"
	"fulcrum/phases/preflight"
	"fulcrum/phases/rce"
	"fulcrum/reports/record"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// prober is a workload whose model is large, or has senses: only it knows what a trial costs and what to ask.
type prober interface {
	// effort says how much may be tried.
	effort(most int) effort
	// unused is preflight.Trial.Unused.
	unused(b *selector.Batch, name string) string
	// Senses tries the policy outside of any phase.
	Senses(report *preflight.Report, e effort) error
}

// effort is how much a trial may do.
type effort struct {
	queries int  // of a batch
	short   bool // completions and groups must be small
	long    bool // a whole step takes minutes: its memory is not measured
	rough   bool // log-probabilities have less than 24 bits
}

// preflight looks at the data of a fresh run, and tries its phases on clones of the policy, before the first
// step. What it finds goes to the log and, as events before the first row, to metrics.jsonl; a finding of
// severity stop is the error that ends the run. Nothing of the run notices: weights, random numbers and
// rows of training are the same without it.
func runPreflight(j *job, ctx context.Context, w workload, plan phases.Plan) error {
	c := j.cfg
	if !c.Preflight.Enabled {
		return nil
	}
	j.logf("preflight: looking at the data and trying each phase on copies of the policy (preflight.enabled=false leaves it out)")
	begin := time.Now()
	opt, e := c.Preflight, effort{queries: c.Preflight.Queries}
	trial := preflight.Trial{Policy: w.Policy(), Data: w.PhasesData(), Seed: c.Seed, GoOn: c.compatible()}
	p, special := w.(prober)
	if special {
		e = p.effort(opt.Queries)
		opt.Queries, trial.Unused, trial.Rough = e.queries, p.unused, e.rough
	}
	if !e.long {
		if err := checkMemory(j, ctx, trial, stagesOf(j, w, plan, false)); err != nil {
			return err
		}
	}
	report := preflight.New(opt, c.Seed)
	faults, err := w.Audit(opt.Audit(c.GRPO.Advantage.Precision))
	if err != nil {
		return err
	}
	report.Faults(faults)
	if err := w.Recompute(report, plan, e); err != nil {
		return err
	}
	if special {
		if err := p.Senses(report, e); err != nil {
			return err
		}
	}
	if e.short {
		trial.Data.Shots = min(trial.Data.Shots, 8)
	}
	if err := report.Try(ctx, trial, stagesOf(j, w, plan, e.short)); err != nil {
		return err
	}
	if c.compatible() {
		report.Soften()
	}
	if err := tellFindings(j, report.Findings()); err != nil {
		return err
	}
	said := fmt.Sprintf("preflight: %d checks, %s", report.Checks(), counted(report.Findings()))
	if c.DryRun {
		stdout.Println(said)
	} else {
		j.logf("%s (%.1f s)", said, time.Since(begin).Seconds())
	}
	return report.Judge()
}

// memory measures a step with the largest shapes. What it finds depends on the machine and goes to run.log and
// summary.json alone.
func checkMemory(j *job, ctx context.Context, t preflight.Trial, stages []preflight.Stage) error {
	line, found, err := preflight.Memory(ctx, j.cfg.Preflight, t, stages, j.device)
	if err != nil {
		return err
	}
	if line != "" {
		j.logf("%s", line)
	}
	for _, f := range found {
		if f.Severity == doctor.Stop && j.cfg.compatible() {
			f.Severity = doctor.Warning
		}
		if f.Severity == doctor.Note {
			j.logf("%s", f.Message)
		} else {
			j.log.Warnf("%s", f.Message)
		}
		j.found = append(j.found, record.Finding{Check: f.Check, Severity: string(f.Severity), Message: f.Message, Key: f.Key,
			Value: record.Number(f.Value), Limit: record.Number(f.Limit), Phase: preflight.Name})
		if f.Severity == doctor.Stop {
			return &doctor.StopError{Finding: f}
		}
	}
	return nil
}

// stages are the phases of a plan with the way to make each anew, on other data and without weight decay. A
// batch is as the configuration says, but groups are not filled with other queries, and small where short says so.
func stagesOf(j *job, w workload, plan phases.Plan, short bool) []preflight.Stage {
	const few = 4 // candidates of a short group
	c := *j.cfg
	c.Optim.WeightDecay = 0
	for _, o := range []*grpo.Options{&c.GRPO, &c.GRPOOnline} {
		if o.ZeroVariance == "resample" {
			o.ZeroVariance = "keep"
		}
		if short {
			o.GroupSize = min(o.GroupSize, few)
		}
	}
	if short {
		c.RCE.GroupSize = min(c.RCE.GroupSize, few)
	}
	var out []preflight.Stage
	for _, p := range plan.Phases {
		s := preflight.Stage{Name: p.Name(), Source: p.Source(), Optim: c.Optim, Largest: func(n int) []int { return w.Largest(p.Source(), n) }}
		switch p.Name() {
		case "sft":
			s.Credit = c.imitated(rce.Options{Top1Only: true})
		case "grpo":
			s.Online, s.Freeze, s.Credit = c.GRPO.Rollout == "online", c.GRPO.Freeze, compared(c.GRPO)
			s.SampleTemp = c.drawnAt(c.GRPO.SampleTemp, c.GRPO.Temperature.Enabled)
		case "grpo_online":
			s.Online, s.Freeze, s.Credit = true, c.GRPOOnline.Freeze, compared(c.GRPOOnline)
			s.SampleTemp = c.drawnAt(c.GRPOOnline.SampleTemp, c.GRPOOnline.Temperature.Enabled)
		case "rce":
			s.Online, s.Credit = c.RCE.Rollout == "online", c.imitated(c.RCE)
			s.SampleTemp = c.drawnAt(c.RCE.SampleTemp, false)
		}
		build := func(c *Config, src selector.Source) (phases.Phase, error) {
			make, err := Phases().Get(p.Name())
			if err != nil {
				return nil, err
			}
			return make(c, otherData{w, src})
		}
		s.Build = func(src selector.Source) (phases.Phase, error) { return build(&c, src) }
		s.Clipped = func(src selector.Source, norm float64) (phases.Phase, error) {
			harder := c
			harder.Optim.GradClipNorm = norm
			return build(&harder, src)
		}
		out = append(out, s)
	}
	return out
}

// otherData is a workload whose phases train on one source.
type otherData struct {
	workload
	src selector.Source
}

func (d otherData) Beams(string) (selector.Source, error)   { return d.src, nil }
func (d otherData) Records(string) (selector.Source, error) { return d.src, nil }
func (d otherData) Online(string) (selector.Source, error)  { return d.src, nil }

// tell records findings as events before the first step, which shows them; a dry run prints them.
func tellFindings(j *job, findings []preflight.Finding) error {
	for _, f := range findings {
		if j.cfg.DryRun {
			stdout.Printf("%-7s  %s: %s: %s\n", f.Severity, f.Phase, f.Check, f.Message)
			continue
		}
		if err := j.log.Record(record.KindEvent, f.Phase, 0, 0, 0, f.Fields()); err != nil {
			return err
		}
	}
	return nil
}

// counted says how many findings of each severity there are: "1 warning, 2 notes".
func counted(findings []preflight.Finding) string {
	text := ""
	for _, s := range []doctor.Severity{doctor.Stop, doctor.Warning, doctor.Note} {
		n := 0
		for _, f := range findings {
			if f.Severity == s {
				n++
			}
		}
		if n == 0 {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%d %s", n, s)
		if n > 1 {
			text += "s"
		}
	}
	if text == "" {
		return "nothing found"
	}
	return text
}

// Audit looks at the selector's data: the recorded rewards of the sets that phases of this run learn from.
func (w *pointerWork) Audit(lim audit.Limits) ([]audit.Fault, error) {
	c, b := w.job.cfg, w.bundle
	var imitated, compared *beamdata.Set
	for _, name := range c.Schedule {
		switch {
		case name == "sft" && c.SFT.Epochs > 0, name == "rce" && c.RCE.Epochs > 0 && c.RCE.Rollout != "online":
			imitated = firstSet(b.RCE, b.Records)
		case name == "grpo" && c.GRPO.Epochs > 0 && c.GRPO.Rollout != "online",
			name == "grpo_online" && c.GRPOOnline.Epochs > 0 && c.GRPOOnline.Rollout != "online":
			compared = firstSet(b.Records, b.RCE)
		}
	}
	return b.Audit(imitated, compared, lim), nil
}

// firstSet returns the first set with queries; nil where there is none.
func firstSet(sets ...*beamdata.Set) *beamdata.Set {
	if i := slices.IndexFunc(sets, func(s *beamdata.Set) bool { return s.Len() > 0 }); i >= 0 {
		return sets[i]
	}
	return nil
}

// Largest returns the n queries with the largest pools, and among those the most candidates.
func (w *pointerWork) Largest(src selector.Source, n int) []int {
	set := src.(*pointer.Source).Set()
	order := make([]int, set.Len())
	for i := range order {
		order[i] = i
	}
	size := func(i int) int { return set.PoolSize(i)*10_000 + set.NumCandidates(i) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
	return order[:min(n, len(order))]
}
