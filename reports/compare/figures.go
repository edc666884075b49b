package compare

import (
	"cmp"
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

// PaperFigures returns what compares runs in a paper: their curves, runs that differ in their seed alone in one band, and the differences
// that the comparison states of the first metric.
func PaperFigures(dirs []string, wide vg.Length) ([]*chart.Figure, error) {
	_, pairs, err := ComparePairs(dirs)
	if err != nil {
		return nil, err
	}
	var runs []*record.Run
	for _, dir := range dirs {
		run, err := record.ReadRun(dir)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	names := SettingNames(arms.ArmsOf(runs))
	var first Pairing
	for _, p := range pairs { // the first metric on held-out questions, if there are some
		if first.Split == "" || record.HeldOut(p.Split) && !record.HeldOut(first.Split) {
			first = p
		}
	}
	var shown []sweepreport.Difference
	for _, p := range pairs {
		if p.Split == first.Split && p.Metric == first.Metric {
			shown = append(shown, sweepreport.Difference{Name: cmp.Or(names[p.Name], p.Name), ArmComparison: &arms.ArmComparison{Paired: p.paired}})
		}
	}
	seeded := Settings(runs)
	out := []*chart.Figure{sweepreport.Overlay(seeded),
		sweepreport.DifferencesFigure(wide, first.Metric, first.Split, cmp.Or(names[first.Against], first.Against), shown)}
	if missing := len(seeded) - 1 - len(shown); missing > 0 && out[1] != nil {
		out[1].Omits = page.Plural(missing, "setting") + " without comparison: `run report` without a figure says why"
	}
	return slices.DeleteFunc(out, func(f *chart.Figure) bool { return f == nil }), nil
}

// Settings are the arms of runs under the names of SettingNames.
func Settings(runs []*record.Run) []arms.ComparedArm {
	seeded := arms.ArmsOf(runs)
	names := SettingNames(seeded)
	for i, a := range seeded {
		seeded[i].Name = names[a.Name]
	}
	return seeded
}

// SettingNames calls arms, and their runs where they have one, by the settings in which they differ or, where these are many, by their
// overrides; by letters where neither tells them apart.
func SettingNames(seeded []arms.ComparedArm) map[string]string {
	const few = 3
	settings, overrides := make([]map[string]string, len(seeded)), make([]map[string]string, len(seeded))
	for i, a := range seeded {
		settings[i], overrides[i] = map[string]string{}, map[string]string{}
		record.Flatten(settings[i], "", a.Runs[0].Tree)
		for _, o := range a.Runs[0].Overrides {
			key, value, _ := strings.Cut(o, "=")
			overrides[i][key] = value
		}
	}
	told := list.Map(seeded, func(a arms.ComparedArm) string { return a.Name })
	for _, of := range [][]map[string]string{overrides, settings} { // the settings have the last word
		differ := slices.DeleteFunc(Differing(of), func(s Setting) bool {
			return s.Key == "seed" || strings.HasPrefix(s.Key, "hydra") || slices.Contains(s.Values, nil)
		})
		by := list.Map(stat.Indices(len(seeded)), func(i int) string {
			return strings.Join(list.Map(differ, func(s Setting) string { return s.Key + "=" + *s.Values[i] }), ", ")
		})
		if len(differ) <= few && len(seeded) > 1 && len(list.Set(by)) == len(by) {
			told = by
		}
	}
	names := map[string]string{}
	for i, a := range seeded {
		names[a.Name] = told[i]
		if len(a.Runs) == 1 {
			names[a.Names[0]] = told[i]
		}
	}
	return names
}
