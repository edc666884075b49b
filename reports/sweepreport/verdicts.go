package sweepreport

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// maxCompared is how many settings a sweep's report compares question by question, best first.
const maxCompared = 8

// comparedSetting is a setting whose jobs left scores, a run for each seed.
type comparedSetting struct {
	setting *setting
	runs    []*record.Run // with their evaluations alone
}

// readVerdicts compares the best setting with those behind it, and all of them with the baselines, on
// the held-out questions (else on val), from the evals.jsonl of their jobs.
func (v *View) readVerdicts() {
	var arms []results.ComparedArm
	for _, s := range v.settings {
		if s.class() != 0 || len(arms) == maxCompared {
			break
		}
		arm := results.ComparedArm{Name: page.CodeList(s.overrides)}
		for _, j := range s.jobs {
			if !v.feasible(j) || j.Dir == "" {
				continue
			}
			run, err := evaluatedRun(j)
			if err != nil {
				v.notes = append(v.notes, fmt.Sprintf("job %d: %s", j.Number, page.Plain(err.Error())))
				continue
			}
			seed := fmt.Sprint(run.Setting("seed"))
			if len(run.Evaluations) > 0 && !slices.ContainsFunc(arm.Runs,
				func(r *record.Run) bool { return fmt.Sprint(r.Setting("seed")) == seed }) {
				arm.Runs = append(arm.Runs, run)
			}
		}
		if len(arm.Runs) > 0 {
			arms = append(arms, arm)
			v.compared = append(v.compared, comparedSetting{s, arm.Runs})
		}
	}
	if len(arms) == 0 {
		return
	}
	split, metric, ok := results.JudgedBy(arms[0].Runs[0])
	if !ok {
		return
	}
	ranked := 0
	if v.chosenOn(split, metric) {
		ranked = v.rankings()
	}
	if tables := results.ArmTables(arms, func(s, m string) bool { return s == split && m == metric }, ranked); len(tables) > 0 {
		v.verdicts = &tables[0]
		v.verdicts.Reference = "the best setting"
		if v.tied() {
			v.verdicts.Reference = "the first setting"
		}
	}
}

// chosenOn says whether the sweep ranks its settings by scores of a split: then the best of them is the luckiest too.
func (v *View) chosenOn(split, metric string) bool {
	return slices.ContainsFunc(v.opt.Objectives, func(o Objective) bool {
		return strings.HasPrefix(o.Name, "eval."+split+".") || split == "val" && strings.HasPrefix(o.Name, "val_") || o.Name == metric
	})
}

// rankings is how many comparisons a ranking of the settings makes: each with each other, and with two baselines.
func (v *View) rankings() int {
	n := 0
	for _, s := range v.settings {
		n += stats.BoolInt(s.class() == 0)
	}
	return n*(n-1)/2 + 2*n
}

// evaluatedRun reads the scores of a job, what makes its rewards where those are of answers, and its seed: from the job's
// overrides, else from its config.
func evaluatedRun(j Job) (*record.Run, error) {
	run := &record.Run{Dir: j.Dir}
	var err error
	if run.Evaluations, err = record.ReadEvals(j.Dir); err != nil {
		return nil, err
	}
	written, ok := j.Params["seed"]
	for _, o := range j.Overrides {
		if isSeed(o) {
			_, written, ok = strings.Cut(o, "=")
		}
	}
	if seed, err := strconv.Atoi(written); ok && err == nil {
		tree := map[string]any{"seed": seed}
		atRandom := func(e record.Evaluation) bool { return e.Policy == record.PolicyRandom }
		if !slices.ContainsFunc(run.Evaluations, atRandom) && run.ReadConfig() == nil { // of answers: these terms make their rewards
			tree["rewards"] = run.Setting("rewards")
		}
		run.Tree = tree
		return run, nil
	}
	return run, run.ReadConfig()
}

// otherOrder says which setting the verdicts' score would put first, where that is not the objective's choice; "" elsewhere. On other
// questions than those of val no key would choose by it.
func (v *View) otherOrder() string {
	t := v.verdicts
	if t == nil || t.Split != "val" || v.opt.Objectives[0].Name == "val_"+t.Metric {
		return ""
	}
	name, highest, first := t.Highest()
	if highest == first {
		return ""
	}
	return fmt.Sprintf("By the %s of these checkpoints on val another setting stands first: %s with %s against %s. "+
		"`checkpoint.best.metric=val_%s` chooses checkpoints, jobs and settings by that.", page.Plain(results.MetricName(t.Metric)), name,
		page.Sig(highest, 4), page.Sig(first, 4), t.Metric)
}

func (v *View) writeVerdicts(d *page.Document) {
	t := v.verdicts
	if t == nil {
		return
	}
	d.Heading(2, "Verdicts")
	judged := "what the jobs ended with"
	if _, err := results.EvaluationOf(v.compared[0].runs[0], t.Split, t.Metric, record.PolicyBest); err == nil {
		judged = "the jobs' best checkpoints"
	}
	text := fmt.Sprintf("Mean %s of %s, on the questions of %s.", page.Plain(results.MetricName(t.Metric)), judged, page.Plain(t.Split))
	if n := len(t.Rows); n > 1 {
		text += fmt.Sprintf(" %s stands first, by %s, and the others of the best %d are held against it, question by question and "+
			"averaged over seeds.", page.Capital(t.Reference), page.Plain(v.opt.Objectives[0].Name), n)
	}
	corrected := page.Plural(t.Comparisons(), "comparison") + " of this table"
	if v.chosenOn(t.Split, t.Metric) {
		text += " The settings were ranked by these questions, which flatters the best one a little."
		corrected = page.Plural(max(t.Comparisons(), v.rankings()), "comparison") + " that rank the settings"
	}
	d.Paragraph("%s Intervals and p-values are corrected for the %s (Holm).", text, corrected)
	t.WriteTable(d)
}
