package compare

import (
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/arms"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweepreport"
)

// PaperFigures returns what compares runs in a paper: their curves and the differences from the first. Runs that differ in their seed alone
// are one.
func PaperFigures(dirs []string, wide vg.Length) ([]*chart.Figure, error) {
	runs, err := readRuns(dirs)
	if err != nil {
		return nil, err
	}
	seeded := asked(&page.Document{}, Settings(runs))
	return slices.DeleteFunc([]*chart.Figure{sweepreport.Overlay(seeded), sweepreport.DifferencesFigure(wide, seeded)},
		func(f *chart.Figure) bool { return f == nil }), nil
}

// Settings are the arms of runs. They are called by the keys that all of them have and in which they differ or, where these are many, by
// their overrides; by numbers and folders where neither tells them apart.
func Settings(runs []*record.Run) []arms.ComparedArm {
	const few = 3
	seeded := arms.ArmsOf(runs)
	settings, overrides := make([]map[string]string, len(seeded)), make([]map[string]string, len(seeded))
	for i, a := range seeded {
		seeded[i].Name += " (" + filepath.Base(a.Runs[0].Dir) + ")"
		settings[i], overrides[i] = map[string]string{}, map[string]string{}
		record.Flatten(settings[i], "", a.Runs[0].Tree)
		for _, o := range a.Runs[0].Overrides {
			key, value, _ := strings.Cut(o, "=")
			overrides[i][key] = value
		}
	}
	for _, of := range [][]map[string]string{overrides, settings} { // the settings have the last word
		differ := slices.DeleteFunc(Differing(of), func(s Setting) bool {
			return s.Key == "seed" || record.ChangesNoResult(s.Key) || slices.Contains(s.Values, nil)
		})
		names := list.Map(stat.Indices(len(seeded)), func(i int) string {
			return strings.Join(list.Map(differ, func(s Setting) string { return s.Key + "=" + *s.Values[i] }), ", ")
		})
		for i := range seeded {
			if len(differ) <= few && len(seeded) > 1 && len(list.Set(names)) == len(names) {
				seeded[i].Name = names[i]
			}
		}
	}
	return seeded
}
