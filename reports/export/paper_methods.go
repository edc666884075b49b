package export

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// withoutEffect are the sections and keys that change no number of a run.
var withoutEffect = strings.Fields(`checkpoint.every_epochs checkpoint.every_steps checkpoint.format checkpoint.keep checkpoint.keep_states
	checkpoint.on_damage checks device dry_run evidence hydra logging on_end report seed sweep task threads vars`)

// methods is a paragraph in LaTeX with the settings of runs that change their numbers, as their configuration has them.
func methods(runs []*record.Run, seeded []arms.ComparedArm, blocks []*paperBlock) string {
	values := map[string][]string{} // of each key, without those of the sections that a run has no use for
	for _, a := range seeded {
		settings := map[string]string{}
		record.Flatten(settings, "", a.Runs[0].Tree)
		for key, value := range settings {
			idle := slices.ContainsFunc(withoutEffect, func(w string) bool { return key == w || strings.HasPrefix(key, w+".") })
			if !idle && !slices.Contains(values[key], value) {
				values[key] = append(values[key], value)
			}
		}
	}
	var varied []string
	settings, last := "", ""
	for _, key := range slices.Sorted(maps.Keys(values)) {
		section, rest, nested := strings.Cut(key, ".")
		switch value := values[key][0]; {
		case len(values[key]) > 1:
			varied = append(varied, key)
		case slices.Contains([]string{"null", "[]", "{}", ""}, value):
		case nested && section == last:
			settings += ", " + rest + " " + value
		case nested:
			settings, last = settings+"; "+section+": "+rest+" "+value, section
		default:
			settings, last = settings+"; "+key+" "+value, ""
		}
	}
	text := ""
	tell := func(what string, of func(*record.Run) string) {
		var all []string
		for _, r := range runs {
			if told := of(r); !slices.Contains(all, told) {
				all = append(all, told)
			}
		}
		if len(all) > 0 {
			text += what + ": " + page.Joined(all) + ". "
		}
	}
	tell("Optimizer steps", func(r *record.Run) string { return page.Thousands(r.LastStep()) })
	tell("Seeds", func(r *record.Run) string { return fmt.Sprint(r.Seed()) })
	summary := func(r *record.Run) record.Summary { return *cmp.Or(r.Summary, &record.Summary{}) }
	tell("Data", func(r *record.Run) string {
		return fmt.Sprintf("%s, fingerprint %.12s", summary(r).Data.Name, summary(r).Data.Fingerprint)
	})
	tell("Program", func(r *record.Run) string {
		v := summary(r).Versions
		return fmt.Sprintf("Fulcrum %s, libtorch %s, on %s", strings.TrimSpace(v["fulcrum"]+" "+v["commit"]), v["libtorch"], summary(r).Device)
	})
	if len(varied) > 0 {
		text += "Varied: " + page.Joined(varied) + ". "
	}
	text += "Settings: " + strings.TrimPrefix(settings, "; ") + ". Intervals are of 95%: of means over questions (and seeds, where there " +
		"are several, by Student's t), of differences paired by question. p-values are corrected for the comparisons beside them (Holm). "
	var look stats.Look
	for _, b := range blocks {
		for _, r := range b.rows {
			look = look.Later(r.Look)
		}
	}
	if look != (stats.Look{}) {
		text += page.Capital(look.Spent()) + " "
	}
	return "\n{\\sloppy\\paragraph{Methods.} " + page.Latex(strings.TrimSpace(text)) + "\\par}\n"
}
