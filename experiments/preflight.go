package experiments

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"fulcrum/beamdata"
	"fulcrum/beamdata/audit"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/preflight"
	"fulcrum/reports"
	"fulcrum/selector"
)

// preflight looks at the data of a fresh run, and tries its phases on clones of the policy, before the first
// step. What it finds goes to the log and, as events before the first row, to metrics.jsonl; a finding of
// severity stop is the error that ends the run. Nothing of the run notices: weights, random numbers and
// rows of training are the same without it.
func (r *run) preflight(ctx context.Context, w workload, plan phases.Plan) error {
	opt := r.cfg.Preflight
	if !opt.Enabled {
		return nil
	}
	begin := time.Now()
	report := preflight.New(opt, r.cfg.Seed)
	report.Faults(w.Audit(opt.Audit(r.cfg.GRPO.Advantage.Precision)))
	trial := preflight.Trial{Policy: w.Policy(), Data: w.PhasesData(), Seed: r.cfg.Seed, GoOn: r.cfg.compatible()}
	if err := report.Try(ctx, trial, r.stages(w, plan)); err != nil {
		return err
	}
	if r.cfg.compatible() {
		report.Soften()
	}
	if err := r.tell(report.Findings()); err != nil {
		return err
	}
	if r.cfg.DryRun {
		fmt.Fprintf(os.Stdout, "preflight: %d checks, %s\n", report.Checks(), counted(report.Findings()))
	} else {
		r.logf("preflight: %d checks in %.1f s, %s", report.Checks(), time.Since(begin).Seconds(), counted(report.Findings()))
	}
	return report.Judge()
}

// stages are the phases of a plan with the way to make each anew, on other data and without weight decay. A
// batch is as the configuration says, but groups are not filled with other queries.
func (r *run) stages(w workload, plan phases.Plan) []preflight.Stage {
	c := *r.cfg
	c.Optim.WeightDecay = 0
	for _, o := range []*phases.GRPOOptions{&c.GRPO, &c.GRPOOnline} {
		if o.ZeroVariance == "resample" {
			o.ZeroVariance = "keep"
		}
	}
	var out []preflight.Stage
	for _, p := range plan.Phases {
		s := preflight.Stage{Name: p.Name(), Source: p.Source()}
		switch p.Name() {
		case "grpo":
			s.Online, s.Freeze = c.GRPO.Rollout == "online", c.GRPO.Freeze
		case "grpo_online":
			s.Online, s.Freeze = true, c.GRPOOnline.Freeze
		case "rce":
			s.Online = c.RCE.Rollout == "online"
		}
		s.Build = func(src selector.Source) (phases.Phase, error) {
			make, err := Phases().Get(p.Name())
			if err != nil {
				return nil, err
			}
			return make(&c, otherData{w, src})
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
func (r *run) tell(findings []preflight.Finding) error {
	for _, f := range findings {
		if r.cfg.DryRun {
			fmt.Fprintf(os.Stdout, "%-7s  %s: %s: %s\n", f.Severity, f.Phase, f.Check, f.Message)
			continue
		}
		if err := r.log.Record(reports.KindEvent, f.Phase, 0, 0, 0, f.Fields()); err != nil {
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
func (w *pointerWork) Audit(lim audit.Limits) []audit.Fault {
	c, b := w.run.cfg, w.bundle
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
	return b.Audit(imitated, compared, lim)
}

// firstSet returns the first set with queries; nil where there is none.
func firstSet(sets ...*beamdata.Set) *beamdata.Set {
	if i := slices.IndexFunc(sets, func(s *beamdata.Set) bool { return s.Len() > 0 }); i >= 0 {
		return sets[i]
	}
	return nil
}

// Audit looks at the conversations.
func (w *vlWork) Audit(lim audit.Limits) []audit.Fault { return nil }
