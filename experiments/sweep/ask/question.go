package ask

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/usage"
	"fulcrum/reports/arms"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweepreport"
	"fulcrum/reports/sweeps"
)

// rowFile is beside sweeps.AnswerFile.
const rowFile = "answer.tex"

// tableWidth is the width of a table where the output is no terminal.
const tableWidth = 80

// question is what the ledger of a study that grows says now.
type question struct {
	dir     string
	rule    sweeps.Ask
	study   *sweeps.Study
	jobs    []ledger.Job
	view    *sweepreport.View    // nil before all jobs are done
	table   string               // of the jobs
	answers []sweepreport.Answer // of the last stage
}

// read reads the question of a sweep folder; nil: the sweep asks none.
func read(dir string) (*question, error) {
	s, jobs, err := ledger.Load(dir)
	if err != nil || s.Ask == nil {
		return nil, err
	}
	q := &question{dir: dir, rule: *s.Ask, study: s.Study, jobs: jobs}
	if q.trained() {
		opt, rows := sweep.ResultOf(dir, s, jobs)
		q.view = sweepreport.PageOf(dir, rows, opt)
		q.answers, q.table = q.view.Answers(), sweeps.Table(rows, opt, tableWidth)
	}
	return q, nil
}

// trained reports whether all jobs are done.
func (q *question) trained() bool {
	return !slices.ContainsFunc(q.jobs, func(j ledger.Job) bool { return j.State != launcher.Done })
}

// seeds is how many each arm has.
func (q *question) seeds() int { return len(q.jobs) / len(q.study.Arms) }

// asked lists the questions, a line each.
func (q *question) asked(text func(page.Markup) string) string {
	var b strings.Builder
	for _, s := range q.study.Questions {
		b.WriteString(text(page.Markup(page.Plain(s.Ask+"?"))) + "\n")
	}
	return b.String()
}

// standing is where a question stands after its last stage.
type standing struct {
	state string // in sentences
	seeds int    // of the next stage; 0: there is none
	ended bool   // for good: what the budget ends may go on with another
}

// judge says where the question stands. It refuses seeds of one arm that were trained on different data: they are no sample of one recipe.
func (q *question) judge() (standing, error) {
	have, most := q.seeds(), q.rule.MaxSeeds
	if err := q.sameData(); err != nil {
		return standing{}, err
	}
	tally := map[arms.Outcome]int{}
	for _, a := range q.answers {
		if a.ArmComparison == nil {
			return standing{}, errors.New(page.PlainText(page.Markup(a.Question + " " + a.Sentence)))
		}
		tally[a.Outcome(q.rule.Effect, most)]++
	}
	after := fmt.Sprintf("after %s of each arm", page.Plural(have, "seed"))
	switch {
	case tally[arms.Settled] == len(q.answers):
		return standing{"Settled " + after + ".", 0, true}, nil
	case have >= most:
		return standing{fmt.Sprintf("Not settled %s, the most that were to be trained.", after), 0, true}, nil
	case tally[arms.Unsure] == 0:
		return standing{fmt.Sprintf("Given up %s: by the scores so far %d seeds would settle a difference of %g with a chance below 10 %%: more "+
			"seeds are unlikely to move it; more held-out questions could.", after, most, q.rule.Effect), 0, true}, nil
	}
	stages := stats.Stages(most)
	at, _ := slices.BinarySearch(stages, have+1)
	seeds, state := stages[at], fmt.Sprintf("Open %s.", after)
	if budget, spent := q.rule.Budget.Seconds(), q.spent(); budget > 0 && spent+q.cost(seeds) > budget {
		return standing{fmt.Sprintf("%s The budget ends it: of %s of job time %s are spent, and %d seeds take %s more.", state,
			page.Duration(budget), page.Duration(spent), seeds, page.Duration(q.cost(seeds))), 0, false}, nil
	}
	return standing{state, seeds, false}, nil
}

// sameData refuses an arm whose seeds have read different data.
func (q *question) sameData() error {
	type seen struct {
		num  int
		data string
	}
	first := map[string]seen{} // of each arm
	for _, j := range q.jobs {
		s, err := record.ReadSummary(filepath.Join(q.dir, j.Dir))
		if err != nil || s == nil { // without it there is no answer, which says why
			continue
		}
		if one, ok := first[j.Arm]; !ok {
			first[j.Arm] = seen{j.Num, s.Data.Fingerprint}
		} else if s.Data.Fingerprint != one.data {
			return usage.Errorf("%s: the data changed between the seeds of arm %s (jobs %d and %d have other fingerprints in %s): they cannot be "+
				"averaged; ask again, in another hydra.sweep.dir", q.dir, j.Arm, one.num, j.Num, record.SummaryFile)
		}
	}
	return nil
}

// needs says in a sentence how many seeds, at least as many as the next stage has, or held-out questions would settle the open differences
// if they were as large as is worth having.
func (q *question) needs(least int) string {
	spread := "By the spread so far"
	if q.seeds() == 2 {
		spread = "By the spread of two seeds, a rough guide,"
	}
	most, seeds, questions, n := q.rule.MaxSeeds, least, 0, 0
	for _, a := range q.answers {
		if a.Outcome(q.rule.Effect, most) == arms.Settled {
			continue
		}
		n = a.N
		s, more := a.Needs(q.rule.Effect, most)
		if s == 0 {
			s, more = most+1, cmp.Or(more, math.MaxInt)
		}
		seeds, questions = max(seeds, s), max(questions, more)
	}
	switch {
	case seeds <= most:
		return fmt.Sprintf("%s %d seeds settle a difference of %g on %s in 4 of 5 cases.", spread, seeds, q.rule.Effect,
			page.Plural(n, "held-out question"))
	case questions < math.MaxInt:
		return fmt.Sprintf("%s a difference of %g takes about %s with %d seeds to settle: there are %s.", spread, q.rule.Effect,
			page.Plural(stats.RoundUp(questions), "held-out question"), most, page.Thousands(n))
	}
	return fmt.Sprintf("%s %d seeds do not settle a difference of %g, on however many held-out questions.", spread, most, q.rule.Effect)
}

// plan says what settling takes and costs, up to the next stage and at most.
func (q *question) plan(seeds int) string {
	jobs := func(n int) string {
		return fmt.Sprintf("%s, %s of job time", page.Plural((n-q.seeds())*len(q.study.Arms), "job"), page.Duration(q.cost(n)))
	}
	text := ""
	for i, a := range q.answers {
		if len(q.answers) > 1 {
			text += fmt.Sprintf("Arm %s. ", q.study.Questions[i].Arm)
		}
		text += strings.TrimSpace(a.ErrorParts("held-out questions")) + " "
	}
	text += q.needs(seeds) + fmt.Sprintf(" The next stage, %d seeds of each arm, costs %s", seeds, jobs(seeds))
	if most := q.rule.MaxSeeds; most > seeds {
		text += fmt.Sprintf("; all %d seeds cost %s", most, jobs(most))
	}
	return text + "."
}

// spent is the job time so far, in seconds.
func (q *question) spent() float64 {
	return list.Sum(q.jobs, func(j ledger.Job) float64 { return j.Seconds })
}

// cost is the job time, in seconds, that so many seeds of each arm take beyond those trained.
func (q *question) cost(seeds int) float64 {
	return q.spent() / float64(q.seeds()) * float64(seeds-q.seeds())
}

// first says, before anything runs, what is trained in any case and what that costs, as far as it can be known; "" once it is trained.
func (q *question) first() string {
	if q.trained() || q.seeds() > 2 {
		return ""
	}
	most := q.rule.MaxSeeds * len(q.study.Arms)
	text := fmt.Sprintf("The first two seeds are %s, all %d are %d. ", page.Plural(len(q.jobs), "job"), q.rule.MaxSeeds, most)
	if took := q.earlier(); len(took) > 0 {
		cost := func(jobs int) string { return page.Duration(stat.Mean(took) * float64(jobs)) }
		text += fmt.Sprintf("By %s with these settings and seeds they take %s of job time, all at most %s.",
			page.Plural(len(took), "earlier run"), cost(len(q.jobs)), cost(most))
	} else {
		text += "What they cost is not known before the first job of each arm has ended: no earlier run has their settings. The cost of " +
			"further seeds is said before they are trained."
	}
	if q.rule.Budget > 0 {
		text += fmt.Sprintf(" The budget, %s, limits what comes after them; they count towards it.", page.Duration(q.rule.Budget.Seconds()))
	}
	return text + "\n"
}

// earlier are the seconds that finished runs with the configuration of a job of this question took, beside its folder or where runs are
// written by default.
func (q *question) earlier() (took []float64) {
	for _, root := range []string{filepath.Dir(q.dir), "multirun", "outputs"} {
		dirs, _ := runfolder.Find(root) // where there is none, nothing is known
		for _, dir := range dirs {
			s, err := record.ReadSummary(dir)
			if err == nil && s != nil && s.State == record.StateDone &&
				slices.ContainsFunc(q.jobs, func(j ledger.Job) bool { return j.Fingerprint == s.Versions["config"] }) {
				took = append(took, s.WallSeconds)
			}
		}
	}
	return took
}

// unanswered writes answer.md where there is none.
func (q *question) unanswered() error {
	if _, err := os.Stat(filepath.Join(q.dir, sweeps.AnswerFile)); err == nil {
		return nil // the answer of the stage before
	}
	return q.write("No answer yet.")
}

// write writes answer.md: question, rule, answers, and where it stands; once there are answers, their figure and their rows in LaTeX too.
func (q *question) write(state string) error {
	var d page.Document
	d.Heading(1, "Question")
	d.List(strings.Split(strings.TrimSpace(q.asked(func(m page.Markup) string { return string(m) })), "\n")...)
	d.Heading(2, "Answer")
	if len(q.answers) > 0 {
		d.List(list.Map(q.answers, func(a sweepreport.Answer) string { return a.Sentence })...)
	}
	d.Paragraph("%s", state)
	d.Paragraph("%s", q.rule.Rule())
	if q.view != nil {
		if err := q.draw(); err != nil {
			return err
		}
		d.Paragraph("![differences with intervals](%s/answers.svg)", runreport.FiguresFolder)
		d.Paragraph("[report.md](report.md) has the runs, `%s` a row of a table in LaTeX for each comparison.", rowFile)
	}
	return atomicfile.Write(filepath.Join(q.dir, sweeps.AnswerFile), []byte(d.Text()), 0o644)
}

// draw writes the answers as a figure and as a table for a paper.
func (q *question) draw() error {
	paper := chart.Paper{Names: []string{"answers"}}
	figures, err := paper.Choose(q.view.PaperFigures(paper))
	if err != nil {
		return err
	}
	if err := paper.Write(filepath.Join(q.dir, runreport.FiguresFolder), figures); err != nil {
		return err
	}
	tables := q.view.Tables()
	at := slices.IndexFunc(tables, func(t *page.Table) bool { return t.Title == "Answers" })
	var b strings.Builder
	if err := tables[at].LaTeX(&b); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(q.dir, rowFile), []byte(b.String()), 0o644)
}
