package compare

import (
	"cmp"
	"slices"
	"strings"

	"fulcrum/reports/arms"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweepreport"
)

// PaperFigures returns what compares runs in a paper: their curves, runs that differ in their seed alone in one band, and the differences
// that the comparison states of the first metric.
func PaperFigures(dirs []string) ([]*chart.Figure, error) {
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
	seeded := arms.ArmsOf(runs)
	names := SettingNames(seeded)
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
	for i, a := range seeded {
		seeded[i].Name = names[a.Name]
	}
	out := []*chart.Figure{sweepreport.Overlay(seeded),
		sweepreport.DifferencesFigure(first.Metric, first.Split, cmp.Or(names[first.Against], first.Against), shown)}
	if missing := len(seeded) - 1 - len(shown); missing > 0 && out[1] != nil {
		out[1].Omits = page.Plural(missing, "setting") + " without comparison: `run report` without a figure says why"
	}
	return slices.DeleteFunc(out, func(f *chart.Figure) bool { return f == nil }), nil
}

// SettingNames calls arms, and their runs where they have one, by the settings in which they differ: where these are few.
func SettingNames(seeded []arms.ComparedArm) map[string]string {
	const few = 3
	flat := make([]map[string]string, len(seeded))
	for i, a := range seeded {
		flat[i] = map[string]string{}
		record.Flatten(flat[i], "", a.Runs[0].Tree)
		delete(flat[i], "seed")
	}
	differ := Differing(flat)
	differ = slices.DeleteFunc(differ, func(s Setting) bool { return strings.HasPrefix(s.Key, "hydra.") })
	names := map[string]string{}
	for i, a := range seeded {
		name := ""
		for _, s := range differ[:min(few, len(differ))] {
			if s.Values[i] != nil {
				name += ", " + s.Key + "=" + *s.Values[i]
			}
		}
		if len(differ) > few || name == "" {
			name = "  " + a.Name
		}
		names[a.Name] = name[2:]
		if len(a.Runs) == 1 {
			names[a.Names[0]] = name[2:]
		}
	}
	return names
}
