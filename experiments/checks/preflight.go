// Package checks looks at a fresh run before its first step: at its data, and at its phases on copies of the policy.
package checks

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/workload"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/list"
	"fulcrum/internal/stdout"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/preflight"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// Preflight looks at the data of a fresh run, and tries its phases on clones of the policy, before the first
// step. What it finds goes to the log and, as events before the first row, to metrics.jsonl; a finding of
// severity stop is the error that ends the run. Nothing of the run notices: weights, random numbers and
// rows of training are the same without it.
func Preflight(ctx context.Context, j *job.Job, w job.Workload, plan phases.Plan) error {
	c := j.Config
	if !c.Checks.Tries() {
		return nil
	}
	j.Logf("preflight: looking at the data and trying each phase on copies of the policy (checks.off=[preflight] leaves it out)")
	begin := time.Now()
	e := workload.Effort{Queries: preflight.Queries}
	trial := preflight.Trial{Policy: w.Policy(), Ranks: j.Ranks, Data: w.PhasesData(), Seed: c.Seed, AllowNonFinite: c.AllowsNonFinite(),
		WithHeads: workload.WithHeads(w.Policy())}
	if p, ok := w.(workload.Prober); ok {
		e = p.Effort(e.Queries)
		trial.Queries, trial.Unused, trial.Rough = e.Queries, p.Unused, e.Rough
	}
	if s, ok := w.(workload.Scaler); ok {
		trial.Scale = s.Scale
	}
	report := preflight.New(c.Checks.Adjusted(preflight.Checks()), c.Seed)
	if j.Ranks.First() {
		if err := beforeTrial(ctx, j, w, plan, trial, e, report); err != nil {
			return err
		}
	}
	if e.Short {
		trial.Data.Shots = min(trial.Data.Shots, 8)
	}
	stages, err := stagesOf(j, w, plan, e.Short)
	if err != nil {
		return err
	}
	if err := report.Try(ctx, trial, stages); err != nil || !j.Ranks.First() {
		return err
	}
	if err := tellFindings(j, report.Findings()); err != nil {
		return err
	}
	if c.DryRun {
		showPassed(report.Passed())
	}
	said := fmt.Sprintf("preflight: %d checks, %s", report.Checks(), counted(report.Findings()))
	if c.DryRun {
		stdout.Println(said)
	} else {
		j.Logf("%s (%.1f s)", said, time.Since(begin).Seconds())
	}
	return report.Judge()
}

// beforeTrial looks at what one process can see: disk, memory, data, and what the policy makes of its inputs.
func beforeTrial(ctx context.Context, j *job.Job, w job.Workload, plan phases.Plan, t preflight.Trial, e workload.Effort,
	report *preflight.Report) error {
	if err := checkDisk(j, plan, w.Policy().Params().Numel()); err != nil {
		return err
	}
	if !e.Long {
		stages, err := stagesOf(j, w, plan, false)
		if err != nil {
			return err
		}
		if err := checkMemory(ctx, j, t, stages); err != nil {
			return err
		}
	}
	if a, ok := w.(workload.Auditor); ok {
		faults, err := a.Audit(j.Config.GRPO.Advantage.Precision)
		if err != nil {
			return err
		}
		report.Faults(faults)
		if err := a.Recompute(report, plan, e); err != nil {
			return err
		}
	}
	if p, ok := w.(workload.Prober); ok {
		return p.Senses(report, e)
	}
	return nil
}

// checkDisk holds what a run of n trained numbers will write against what is free. What it finds depends on the machine, as that of
// checkMemory.
func checkDisk(j *job.Job, plan phases.Plan, n int) error {
	need, free := plan.Disk(n), runfolder.Free(j.Dir)
	j.Logf("disk: checkpoints and states take up to %s; free: %s", hostmem.Size(need), hostmem.Size(free))
	report := preflight.New(j.Config.Checks.Adjusted(preflight.Checks()), j.Config.Seed)
	report.Disk(need, free, j.Config.Checkpoint.PatienceEpochs != nil || j.Sweep != "") // a sweep may prune its jobs
	return ofMachine(j, report)
}

// ofMachine tells what a report has found, which goes to run.log and summary.json alone.
func ofMachine(j *job.Job, report *preflight.Report) error {
	for _, f := range report.Findings() {
		j.OfMachine(f.Finding, preflight.Name)
	}
	return report.Judge()
}

// checkMemory measures a step with the largest shapes. What it finds depends on the machine.
func checkMemory(ctx context.Context, j *job.Job, t preflight.Trial, stages []preflight.Stage) error {
	line, share, err := preflight.Memory(ctx, t, stages, j.Device)
	if err != nil || line == "" {
		return err
	}
	j.Logf("%s", line)
	report := preflight.New(j.Config.Checks.Adjusted(preflight.Checks()), j.Config.Seed)
	report.Crowded(share, stages[0].Name)
	return ofMachine(j, report)
}

// stagesOf returns the phases of a plan with the way to make each anew, on other data and without weight decay. A
// batch is as the configuration says, but groups are not filled with other queries, and small where short says so.
func stagesOf(j *job.Job, w job.Workload, plan phases.Plan, short bool) ([]preflight.Stage, error) {
	groupSize := 0
	if short {
		groupSize = 4
	}
	c := j.Config.ForTrial(groupSize)
	var out []preflight.Stage
	for _, p := range plan.Phases {
		info := p.Info()
		section, err := c.Phases().Get(info.Name)
		if err != nil {
			return nil, err
		}
		traits := c.Traits(section)
		stage := preflight.Stage{
			Name: info.Name, Source: info.Source, Optim: c.Optim, Online: traits.Learns == phases.FromSamples,
			Freeze: traits.Freeze, Credit: traits.Credit, SampleTemp: traits.SampleTemp,
			Build: func(src selector.Source) (phases.Phase, error) { return c.BuildPhase(info.Name, otherData{src}) },
		}
		if e, ok := p.(phases.Expecter); ok {
			lim := e.Expected()
			stage.Epochs, stage.Steps, stage.Rate = info.Epochs, phases.StepsPerEpoch(p)*info.Epochs, lim.LR
			for n := range stage.Steps {
				stage.Travel += lim.LR * schedule.LROptions(lim.LRPlan).At(n, stage.Steps)
			}
		}
		if s, ok := w.(workload.Sizer); ok {
			stage.Largest = func(n int) []int { return s.Largest(info.Source, n) }
		}
		out = append(out, stage)
	}
	return out, nil
}

// otherData gives every phase one source.
type otherData struct{ src selector.Source }

func (d otherData) Beams(string) (selector.Source, error)   { return d.src, nil }
func (d otherData) Demos(string) (selector.Source, error)   { return d.src, nil }
func (d otherData) Records(string) (selector.Source, error) { return d.src, nil }
func (d otherData) Online(string) (selector.Source, error)  { return d.src, nil }

// tellFindings records findings as events before the first step, which shows them; a dry run prints them.
func tellFindings(j *job.Job, findings []preflight.Finding) error {
	for _, f := range findings {
		if j.Config.DryRun {
			stdout.Printf("%-7s  %s: %s: %s\n", f.Severity, f.Phase, f.Check, f.Message)
			continue
		}
		if err := j.Log.Record(record.KindEvent, f.Phase, 0, 0, 0, f.Fields()); err != nil {
			return err
		}
	}
	return nil
}

// showPassed prints what the checks saw, a block for each phase.
func showPassed(seen []preflight.Seen) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "of\tpassed\twhat was seen")
	for _, s := range seen {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Phase, s.Check, s.Figures)
	}
	table.Flush() // a strings.Builder takes everything
	stdout.Printf("%s", text.String())
}

// counted says how many findings of each severity there are: "1 warning, 2 notes".
func counted(findings []preflight.Finding) string {
	var parts []string
	for _, s := range []doctor.Severity{doctor.Stop, doctor.Warning, doctor.Note} {
		if n := list.Count(findings, func(f preflight.Finding) bool { return f.Severity == s }); n > 0 {
			parts = append(parts, page.Plural(n, string(s)))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing found")
}
