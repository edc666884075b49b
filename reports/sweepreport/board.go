package sweepreport

import (
	"slices"

	"fulcrum/reports/chart"
	"fulcrum/reports/page"
)

// Told is what the board has of a sweep's report, as markdown, with its figures by their names as SVG: verdicts and settings first. What
// the board draws itself so that it answers the mouse, jobs, their curves and their history, is left out.
func (v *View) Told() (markdown string, figures map[string]string) {
	figures = map[string]string{}
	drawn, err := drawFigures(func() []sweepFigure {
		return slices.DeleteFunc(v.Figures(), func(f sweepFigure) bool {
			name := f.Figure.Name
			return v.Opt.Study == nil && (name == curvesName || name == historyName && len(v.Opt.Objectives) == 1)
		})
	}, func(f *chart.Figure) error {
		svg, err := f.Svg()
		figures[f.Name] = string(svg)
		return err
	})
	if err != nil {
		v.note(err)
	}
	var d page.Document
	for _, write := range []func(*page.Document){v.writeBest, v.writeMethods, v.writeVerdicts, v.writeAnswers, v.writeSettings,
		func(d *page.Document) { v.writePlots(d, drawn) }, v.writeImportance, v.writePairs, v.writeNext, (*page.Document).Fold, v.writeReading,
		v.writeAccuracies, v.writeArms, v.writeSplits, v.writeOthers, v.writeWarnings, v.writeAdvice} {
		write(&d)
	}
	return d.Text(), figures
}
