package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/arms"
	"fulcrum/reports/compare"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// withoutEffect are the sections and keys that change no number of a run, and those that the paragraph tells in words.
var withoutEffect = strings.Fields(`checkpoint.every_epochs checkpoint.every_steps checkpoint.format checkpoint.keep checkpoint.on_damage
	checks device dry_run evidence hydra logging on_end policy report schedule seed sweep task threads`)

// methods is a paragraph in LaTeX with the settings of runs that change their numbers, as their configuration has them.
func methods(seeded []arms.ComparedArm) string {
	run := seeded[0].Runs[0]
	flat := list.Map(seeded, func(a arms.ComparedArm) map[string]string {
		settings := map[string]string{}
		record.Flatten(settings, "", a.Runs[0].Tree)
		maps.DeleteFunc(settings, func(key, value string) bool {
			return slices.Contains([]string{"null", "[]", "{}", ""}, value) || slices.ContainsFunc(withoutEffect, func(w string) bool {
				return key == w || strings.HasPrefix(key, w+".")
			})
		})
		return settings
	})
	var varied []string
	for _, s := range compare.Differing(flat) {
		varied = append(varied, s.Key)
	}
	var sections, words []string
	said := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(flat[0])) {
		section, rest, nested := strings.Cut(key, ".")
		if slices.Contains(varied, key) {
			continue
		}
		if !nested {
			section, rest = "run", key
		}
		if said[section] == nil {
			sections = append(sections, section)
		}
		said[section] = append(said[section], rest+" "+flat[0][key])
	}
	for _, section := range sections {
		words = append(words, section+": "+strings.Join(said[section], ", "))
	}
	text := ""
	if policy := run.Setting("policy"); policy != nil {
		text = fmt.Sprintf("A %v policy was trained with the phases %s (%s). ", policy, page.Joined(run.Phases()),
			page.Plural(run.LastStep(), "optimizer step"))
	}
	if s := run.Summary; s != nil {
		text += fmt.Sprintf("Data: %s, fingerprint %.12s. ", s.Data.Name, s.Data.Fingerprint)
	}
	seeds := list.Map(seeded[0].Runs, func(r *record.Run) string { return fmt.Sprint(r.Seed()) })
	text += page.Verb(len(seeds), "Seed ", "Seeds ") + page.Joined(seeds) + ". "
	if len(varied) > 0 {
		text += "Varied: " + page.Joined(varied) + ". "
	}
	text += "Settings of " + strings.Join(words, "; ") + ". " +
		"Intervals are of 95%: of means over questions (and seeds, where there are several), of differences paired by question. p-values are " +
		"corrected for the comparisons beside them (Holm). "
	if s := run.Summary; s != nil {
		v := s.Versions
		text += fmt.Sprintf("Fulcrum %s (%.12s), libtorch %s, on %s.", v["fulcrum"], v["commit"], v["libtorch"], s.Device)
	}
	return "\n{\\sloppy\\paragraph{Methods.} " + page.Latex(strings.TrimSpace(text)) + "\\par}\n"
}
