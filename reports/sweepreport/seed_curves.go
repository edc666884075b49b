package sweepreport

import (
	"cmp"
	"fmt"
	"strings"

	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// curvesOver is the setting whose arms have curves with bands: of a study the first one, of a sweep the compared settings that
// have several seeds, best first, as if they were arms. Their epochs are read once.
func (v *View) curvesOver() *studySetting {
	if v.opt.Study != nil && len(v.armSettings) > 0 {
		return v.armSettings[0]
	}
	if v.seeded != nil {
		return v.seeded
	}
	v.seeded = &studySetting{}
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
			v.seeded.arms = append(v.seeded.arms, a)
		}
	}
	return v.seeded
}

// seedCurvesFigure has a panel for each of the compared settings that has several seeds; nil where none has.
func (v *View) seedCurvesFigure() *sweepFigure {
	s := v.curvesOver()
	f := s.curvesFigure()
	if f != nil {
		f.Figure.Title = "Learning curves of settings with several seeds"
		f.caption += fmt.Sprintf(" A panel for each of %s, best first.", page.Plural(len(s.arms), "setting"))
	}
	return f
}

// Explore is the interactive part of the page: the curves of the figure over each other, and those of other validation metrics.
func (v *View) Explore() (page.Lively, error) {
	var data struct {
		Runs []curves.Shown `json:"runs"`
	}
	for _, a := range v.curvesOver().arms {
		if d := a.learning(); len(d.Steps) > 0 {
			data.Runs = append(data.Runs, curves.Shown{Label: a.Label, Seeds: len(a.runs), Phases: []curves.Span{}, Epochs: d})
		}
	}
	if len(data.Runs) == 0 {
		return page.Lively{}, nil
	}
	return curves.Lively(data)
}
