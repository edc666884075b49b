package reports

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCompared is how many settings a sweep's report compares question by question, best first.
const maxCompared = 8

// readVerdicts compares the best setting with those behind it, and all of them with the baselines, on
// the held-out questions (else on val), from the evals.jsonl of their jobs.
func (v *sweepView) readVerdicts() {
	var arms []comparedArm
	for _, s := range v.settings {
		if s.class() != 0 || len(arms) == maxCompared {
			break
		}
		arm := comparedArm{name: codeList(s.overrides)}
		for _, j := range s.jobs {
			if !v.feasible(j) || j.Dir == "" {
				continue
			}
			run, err := evaluatedRun(j)
			if err != nil {
				v.notes = append(v.notes, fmt.Sprintf("job %d: %s", j.Number, plain(err.Error())))
				continue
			}
			seed := fmt.Sprint(run.setting("seed"))
			if len(run.Evaluations) > 0 && !slices.ContainsFunc(arm.runs, func(r *Run) bool { return fmt.Sprint(r.setting("seed")) == seed }) {
				arm.runs = append(arm.runs, run)
			}
		}
		if len(arm.runs) > 0 {
			arms = append(arms, arm)
		}
	}
	if len(arms) == 0 {
		return
	}
	split, metric, ok := judgedBy(arms[0].runs[0])
	if !ok {
		return
	}
	ranked := 0
	if v.chosenOn(split, metric) {
		ranked = v.rankings()
	}
	if tables := armTables(arms, func(s, m string) bool { return s == split && m == metric }, ranked); len(tables) > 0 {
		v.verdicts = &tables[0]
		v.verdicts.reference = "the best setting"
		if v.tied() {
			v.verdicts.reference = "the first setting"
		}
	}
}

// chosenOn says whether the sweep ranks its settings by scores of a split: then the best of them is the luckiest too.
func (v *sweepView) chosenOn(split, metric string) bool {
	return slices.ContainsFunc(v.opt.Objectives, func(o SweepObjective) bool {
		return strings.HasPrefix(o.Name, "eval."+split+".") || split == "val" && strings.HasPrefix(o.Name, "val_") || o.Name == metric
	})
}

// rankings is how many comparisons a ranking of the settings makes: each with each other, and with two baselines.
func (v *sweepView) rankings() int {
	n := 0
	for _, s := range v.settings {
		n += boolInt(s.class() == 0)
	}
	return n*(n-1)/2 + 2*n
}

// evaluatedRun reads the scores of a job, and its seed: from the job's overrides, else from its config.
func evaluatedRun(j SweepJob) (*Run, error) {
	run := &Run{Dir: j.Dir}
	var err error
	if run.Evaluations, err = ReadEvals(j.Dir); err != nil {
		return nil, err
	}
	written, ok := j.Params["seed"]
	for _, o := range j.Overrides {
		if isSeed(o) {
			_, written, ok = strings.Cut(o, "=")
		}
	}
	if seed, err := strconv.Atoi(written); ok && err == nil {
		run.tree = map[string]any{"seed": seed}
		return run, nil
	}
	return run, run.readConfig()
}

func (v *sweepView) writeVerdicts(d *document) {
	t := v.verdicts
	if t == nil {
		return
	}
	d.heading(2, "Verdicts")
	text := fmt.Sprintf("Mean %s of what the jobs ended with, on the questions of %s.", plain(t.metric), plain(t.split))
	if n := len(t.rows); n > 1 {
		text += fmt.Sprintf(" %s stands first, by %s, and the others of the best %d are held against it, question by question and averaged over seeds.", capital(t.reference), plain(v.opt.Objectives[0].Name), n)
	}
	corrected := plural(t.comparisons(), "comparison") + " of this table"
	if v.chosenOn(t.split, t.metric) {
		text += " The settings were ranked by these questions, which flatters the best one a little."
		corrected = plural(max(t.comparisons(), v.rankings()), "comparison") + " that rank the settings"
	}
	d.paragraph("%s Intervals and p-values are corrected for the %s (Holm).", text, corrected)
	t.writeTable(d)
}
