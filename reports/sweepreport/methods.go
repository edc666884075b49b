package sweepreport

import (
	"fmt"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// comparedMethods is what the jobs of a setting compared with task=icl, each with a seed of its own.
type comparedMethods struct {
	setting *setting
	table   *results.MethodTable
}

// readMethods joins the comparisons of task=icl over the seeds of each setting.
func (v *View) readMethods() {
	for _, s := range v.settings[:min(len(v.settings), maxCompared)] {
		var runs []*record.Run
		for _, j := range s.jobs {
			if !v.compares[j.Number] {
				continue
			}
			if run, err := evaluatedRun(j); err != nil {
				v.note(fmt.Errorf("job %d: %w", j.Number, err))
			} else {
				runs = append(runs, run)
			}
		}
		t, err := results.JoinMethods(runs)
		if err != nil {
			v.note(err)
		} else if t != nil {
			v.methods = append(v.methods, comparedMethods{s, t})
		}
	}
}

// writeMethods says what task=icl found, over the seeds of each setting.
func (v *View) writeMethods(d *page.Document) {
	for _, m := range v.methods {
		title := "Methods"
		if len(v.methods) > 1 {
			title = fmt.Sprintf("Methods with %s", page.CodeList(m.setting.overrides))
		}
		d.Heading(2, "%s", title)
		m.table.Write(d, title)
	}
}
