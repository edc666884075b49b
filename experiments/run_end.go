package experiments

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
)

// printEnd says on the console what a finished run came to, and where its report is.
func (r *run) printEnd() error {
	report := "report: " + page.ReportPath(r.Dir)
	if r.Config.Report.Console == "short" {
		run, err := record.ReadRun(r.Dir)
		if err != nil {
			return err
		}
		next := []string{report}
		if os.Getenv(runfolder.ExpectedHash) == "" { // a sweep has its own end
			dir := program.Quoted(r.Dir)
			next = []string{fmt.Sprintf("another seed: %s --rerun %s seed=%d", program.Name(), dir, r.Config.Seed+1),
				fmt.Sprintf("compare them: %s report %s FOLDER", program.Name(), dir), report}
		}
		return runreport.PrintEnd(stdout.Writer(), run, next)
	}
	done, err := record.ReadSummary(r.Dir)
	if err != nil {
		return err
	}
	if err := runreport.PrintResults(stdout.Writer(), done.Evaluations, stdout.Width()); err != nil {
		return err
	}
	if b := done.Best; b != nil {
		line := fmt.Sprintf("best by %s: %s epoch %d (%.4g)", b.Metric, b.Phase, b.Epoch, float64(b.Value))
		if b.Untrained() {
			line = cmp.Or(b.RuledOut(), fmt.Sprintf("best is the initial policy: no epoch did better by %s (%.4g)", b.Metric, float64(b.Value)))
		}
		for _, more := range []string{b.Choice, b.Other} {
			if more != "" {
				line += "; " + more
			}
		}
		stdout.Printf("%s\n", line)
		if gain := results.BetterThanInit(done.Evaluations); gain != "" {
			stdout.Printf("warning: the best is untrained, although %s\n", gain)
		}
	}
	stdout.Printf("%s\n", report)
	return nil
}

// warnOfIdle names settings without effect, which are no error: scripts share settings. Of a job its sweep has said it.
func (r *run) warnOfIdle() {
	if _, job := os.LookupEnv(runfolder.ExpectedHash); !job {
		for _, idle := range append(r.composed.IdleGroups(r.Overrides), r.composed.Waiting(r.composed.Typed(r.Overrides))...) {
			r.Log.Warnf("%s has no effect: %s", idle, r.composed.Belongs(idle.Key))
		}
		if note := r.composed.UnreadNote(r.composed.Unread()); note != "" {
			r.Log.Warnf("%s", note)
		}
	}
	for _, phase := range r.Config.Schedule {
		if slices.Contains(r.Overrides, "~"+phase) {
			r.Log.Warnf("~%s takes the chosen values of the group away, and %[1]s runs with the program's defaults: schedule= without it "+
				"leaves it out", phase)
		}
	}
}
