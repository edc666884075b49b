package sweepreport

import (
	"cmp"
	"fmt"
	"strings"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// seedCurvesFigure has a panel for each of the compared settings that has several seeds, best first; nil where none has.
func (v *View) seedCurvesFigure() *sweepFigure {
	s := &studySetting{}
	for _, c := range v.compared {
		a := &armRuns{StudyArm: StudyArm{Label: cmp.Or(strings.Join(c.setting.overrides, ", "), "all seeds")}}
		for _, r := range c.runs {
			run := &record.Run{Dir: r.Dir, Evaluations: r.Evaluations}
			if err := run.ReadEpochs(); err != nil {
				v.note(err)
			} else if len(run.Epochs) > 0 {
				a.runs = append(a.runs, run)
			}
		}
		if len(a.runs) > 1 {
			s.arms = append(s.arms, a)
		}
	}
	f := s.curvesFigure()
	if f != nil {
		f.Figure.Title = "Learning curves of settings with several seeds"
		f.caption += fmt.Sprintf(" A panel for each of %s, best first.", page.Plural(len(s.arms), "setting"))
	}
	return f
}
