package checks

import (
	"context"
	"fmt"
	"time"

	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/stdout"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/grpo"
	"fulcrum/phases/preflight"
	"fulcrum/phases/rce"
	"fulcrum/reports"
	"fulcrum/selector"
)

// Preflight looks at the data of a fresh run, and tries its phases on clones of the policy, before the first
// step. What it finds goes to the log and, as events before the first row, to metrics.jsonl; a finding of
// severity stop is the error that ends the run. Nothing of the run notices: weights, random numbers and
// rows of training are the same without it.
func Preflight(j *job.Job, ctx context.Context, w workload.Workload, plan phases.Plan) error {
	c := j.Config
	if !c.Preflight.Enabled {
		return nil
	}
	j.Logf("preflight: looking at the data and trying each phase on copies of the policy (preflight.enabled=false leaves it out)")
	begin := time.Now()
	opt, e := c.Preflight, workload.Effort{Queries: c.Preflight.Queries}
	trial := preflight.Trial{Policy: w.Policy(), Data: w.PhasesData(), Seed: c.Seed, GoOn: c.Compatible()}
	p, special := w.(workload.Prober)
	if special {
		e = p.Effort(opt.Queries)
		opt.Queries, trial.Unused, trial.Rough = e.Queries, p.Unused, e.Rough
	}
	if !e.Long {
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
	if e.Short {
		trial.Data.Shots = min(trial.Data.Shots, 8)
	}
	if err := report.Try(ctx, trial, stagesOf(j, w, plan, e.Short)); err != nil {
		return err
	}
	if c.Compatible() {
		report.Soften()
	}
	if err := tellFindings(j, report.Findings()); err != nil {
		return err
	}
	said := fmt.Sprintf("preflight: %d checks, %s", report.Checks(), counted(report.Findings()))
	if c.DryRun {
		stdout.Println(said)
	} else {
		j.Logf("%s (%.1f s)", said, time.Since(begin).Seconds())
	}
	return report.Judge()
}

// memory measures a step with the largest shapes. What it finds depends on the machine and goes to run.log and
// summary.json alone.
func checkMemory(j *job.Job, ctx context.Context, t preflight.Trial, stages []preflight.Stage) error {
	line, found, err := preflight.Memory(ctx, j.Config.Preflight, t, stages, j.Device)
	if err != nil {
		return err
	}
	if line != "" {
		j.Logf("%s", line)
	}
	for _, f := range found {
		if f.Severity == doctor.Stop && j.Config.Compatible() {
			f.Severity = doctor.Warning
		}
		if f.Severity == doctor.Note {
			j.Logf("%s", f.Message)
		} else {
			j.Log.Warnf("%s", f.Message)
		}
		j.Found = append(j.Found, reports.Finding{Check: f.Check, Severity: string(f.Severity), Message: f.Message, Key: f.Key,
			Value: reports.Number(f.Value), Limit: reports.Number(f.Limit), Phase: preflight.Name})
		if f.Severity == doctor.Stop {
			return &doctor.StopError{Finding: f}
		}
	}
	return nil
}

// stages are the phases of a plan with the way to make each anew, on other data and without weight decay. A
// batch is as the configuration says, but groups are not filled with other queries, and small where short says so.
func stagesOf(j *job.Job, w workload.Workload, plan phases.Plan, short bool) []preflight.Stage {
	const few = 4 // candidates of a short group
	c := *j.Config
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
			s.Credit = imitated(&c, rce.Options{Top1Only: true})
		case "grpo":
			s.Online, s.Freeze, s.Credit = c.GRPO.Rollout == "online", c.GRPO.Freeze, compared(c.GRPO)
			s.SampleTemp = drawnAt(&c, c.GRPO.SampleTemp, c.GRPO.Temperature.Enabled)
		case "grpo_online":
			s.Online, s.Freeze, s.Credit = true, c.GRPOOnline.Freeze, compared(c.GRPOOnline)
			s.SampleTemp = drawnAt(&c, c.GRPOOnline.SampleTemp, c.GRPOOnline.Temperature.Enabled)
		case "rce":
			s.Online, s.Credit = c.RCE.Rollout == "online", imitated(&c, c.RCE)
			s.SampleTemp = drawnAt(&c, c.RCE.SampleTemp, false)
		}
		build := func(c *job.Config, src selector.Source) (phases.Phase, error) {
			make, err := job.Phases().Get(p.Name())
			if err != nil {
				return nil, err
			}
			return make(c, otherData{src})
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

// otherData gives every phase one source.
type otherData struct{ src selector.Source }

func (d otherData) Beams(string) (selector.Source, error)   { return d.src, nil }
func (d otherData) Records(string) (selector.Source, error) { return d.src, nil }
func (d otherData) Online(string) (selector.Source, error)  { return d.src, nil }

// tell records findings as events before the first step, which shows them; a dry run prints them.
func tellFindings(j *job.Job, findings []preflight.Finding) error {
	for _, f := range findings {
		if j.Config.DryRun {
			stdout.Printf("%-7s  %s: %s: %s\n", f.Severity, f.Phase, f.Check, f.Message)
			continue
		}
		if err := j.Log.Record(reports.KindEvent, f.Phase, 0, 0, 0, f.Fields()); err != nil {
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
