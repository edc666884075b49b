package export

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// withoutEffect are the sections and keys that change no number of a run.
var withoutEffect = strings.Fields(`checkpoint.every_epochs checkpoint.every_steps checkpoint.format checkpoint.keep checkpoint.keep_states
	checkpoint.on_damage checks device dry_run evidence hydra logging on_end report seed sweep task threads vars`)

// defining are the keys that are told at their defaults too: they say what the algorithm is.
var defining = regexp.MustCompile(`^(policy|schedule|data\.batch_size|optim\.name|\w+\.(epochs|lr|group_size|clip\.epsilon|kl\.beta|` +
	`temperature\.(start|end)|sample_temperature))$`)

// inWords are keys as a paper has them; the others lose their dots and underscores.
var inWords = strings.NewReplacer("clip.epsilon", "clip ε", "kl.beta", "KL β", "kl.", "KL ", "temperature.start", "initial τ",
	"temperature.end", "final τ", "sample_temperature", "sampling τ", "lr", "learning rate", ".", " ", "_", " ")

// settings says in words what changes the numbers of runs: keys that are not at their defaults, and those that define the algorithm. What
// the policy is comes first, then the data, the phases in their order and the other sections. varied are the keys that have several values.
func (p Paper) settings(runs []*record.Run, values map[string][]string) (told string, varied []string) {
	scheduled := []string{"", "data"} // keys of no section, the data, then the phases
	for _, r := range runs {
		phases, _ := r.Setting("schedule").([]any)
		scheduled = append(scheduled, list.Map(phases, func(phase any) string { return fmt.Sprint(phase) })...)
	}
	sectionOf := func(key string) string { return key[:max(strings.IndexByte(key, '.'), 0)] }
	keys, last := slices.Sorted(maps.Keys(values)), "."
	order := slices.Concat(scheduled, list.Map(keys, sectionOf))
	slices.SortStableFunc(keys, func(a, b string) int { return slices.Index(order, sectionOf(a)) - slices.Index(order, sectionOf(b)) })
	for _, key := range keys {
		section, value, usual, off := sectionOf(key), values[key][0], map[string]string{}, []string{"null", "[]", "{}", ""}
		if p.Default != nil && !defining.MatchString(key) {
			record.Flatten(usual, key, p.Default(key))
		}
		if usual[key] == "null" { // a run of defaults does not have the key
			off = append(off, "none", "false")
		}
		said := strings.TrimPrefix(inWords.Replace(strings.TrimPrefix(strings.TrimPrefix(key, section), "."))+" "+value, "name ")
		switch {
		case slices.ContainsFunc(withoutEffect, func(w string) bool { return key == w || strings.HasPrefix(key, w+".") }):
		case len(values[key]) > 1:
			varied = append(varied, key)
		case slices.Contains([]string{"sft", "rce", "grpo", "grpo_online"}, section) && !slices.Contains(scheduled, section):
		case usual[key] == value, slices.Contains(off, value), value == "0" && strings.HasSuffix(key, ".weight"):
		case section == last:
			told += ", " + said
		default:
			told, last = told+strings.TrimPrefix("; "+strings.ReplaceAll(section, "_", " ")+": ", "; : ")+said, section
		}
	}
	told = strings.TrimPrefix(told, "; ") + ". "
	if p.Default != nil {
		told += "Other settings are the program's defaults. "
	}
	return told, varied
}

// methods is a paragraph in LaTeX on how runs were made.
func (p Paper) methods(runs []*record.Run, values map[string][]string, blocks []*paperBlock) string {
	told, varied := p.settings(runs, values)
	text := ""
	tell := func(what string, of func(*record.Run) string) {
		text += what + ": " + page.Joined(list.Unique(list.Map(runs, of))) + ". "
	}
	tell("Optimizer steps", func(r *record.Run) string { return page.Thousands(r.LastStep()) })
	seeds := list.Unique(list.Map(runs, (*record.Run).Seed))
	tell(page.Verb(len(seeds), "Seed", "Seeds"), func(r *record.Run) string { return fmt.Sprint(r.Seed()) })
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
	text += "Settings: " + told + "Intervals are of 95%: of means over questions (and seeds, where there are several, by Student's t), of " +
		"differences paired by question. p-values are corrected for the comparisons beside them (Holm). "
	for _, b := range blocks {
		var look stats.Look
		for _, r := range b.rows {
			look = look.Later(r.Look)
		}
		if look != (stats.Look{}) {
			text += fmt.Sprintf("By %s on %s, %s ", results.MetricName(b.metric), b.split, look.Spent())
		}
	}
	return "\n{\\sloppy\\paragraph{Methods.} " + page.Latex(strings.TrimSpace(text)) + "\\par}\n"
}
