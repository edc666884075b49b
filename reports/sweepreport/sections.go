package sweepreport

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

const (
	maxJobRows     = 100 // rows of a table of jobs or settings where there are more than twice as many
	maxTailLines   = 20
	maxTailColumns = 200
)

// shownRows is how many of n rows a table has.
func shownRows(n int) int {
	if n > 2*maxJobRows {
		return maxJobRows
	}
	return n
}

// writeSettings shows the settings with their standard deviation over seeds, and what the arms are. Where every setting is one job, the
// table of jobs says the same.
func (v *View) writeSettings(d *page.Document) {
	if v.Opt.Study == nil && (!v.HasSeeds() || v.Unranked) {
		return
	}
	d.Heading(2, "Settings")
	text := "Jobs that differ in nothing but `seed` are one setting."
	if n := len(v.ByNumber) - len(v.Distinct(v.ByNumber)); n > 0 {
		text += fmt.Sprintf(" %s another and %s nothing.", page.Plural(n, "job")+page.Verb(n, " repeats", " repeat"), page.Verb(n, "adds", "add"))
	}
	if v.Opt.Study == nil {
		text += fmt.Sprintf(" Best mean %s first.", page.Plain(v.Opt.Objectives[0].Name))
	}
	d.Paragraph("%s", text)
	shown := v.settings[:shownRows(len(v.settings))]
	table := page.LinesOf(shown)
	table.Column("setting", func(s *setting) string { return page.TableCode(s.Overrides) })
	if v.Opt.Study != nil {
		table.Column("in this report", func(s *setting) string { return page.Plain(s.label()) })
		table.Column("starts from", v.startWords)
		table.Column("overrides", func(s *setting) string { return page.TableCode(s.arm.Overrides) })
	}
	table.Column(">results", func(s *setting) string { return fmt.Sprintf("%d/%d", s.Results, len(s.Jobs)) })
	for i, o := range v.Opt.Objectives {
		table.Column(">"+page.Plain(o.Name)+" (mean ± sd)", func(s *setting) string { return meanSD(s.Values[i]) })
		table.Column(">min … max", func(s *setting) string {
			if x := s.Values[i]; len(x) > 1 {
				return page.Sig(slices.Min(x), 4) + " … " + page.Sig(slices.Max(x), 4)
			}
			return "–"
		})
	}
	if len(v.Opt.Constraints) > 0 {
		table.Column(">infeasible", func(s *setting) string { return fmt.Sprintf("%d/%d", s.Infeasible, s.Results) })
	}
	if v.Count(func(j sweeps.Job) bool { return j.Seconds > 0 }) > 0 {
		table.Column(">time of a run", meanTime)
	}
	d.Table(table.Header, table.Rows)
	if len(shown) < len(v.settings) {
		d.Paragraph("These are the best %d of %s.", len(shown), page.Plural(len(v.settings), "setting"))
	}
	if v.Opt.Study != nil && slices.ContainsFunc(v.Opt.Study.Arms, func(a sweeps.StudyArm) bool { return a.From != "" }) {
		d.Paragraph("An arm that starts from another one takes the checkpoint of the same seed. In such a run the policy at its start is " +
			"that checkpoint: the reference of its KL and the old policy of its ratios begin there, as in the second phase of one run with " +
			"both.")
	}
}

// givenStart is the checkpoint that a setting's runs were configured to start from, whatever file or override said so, or fresh.
func (v *View) givenStart(s *setting, fresh string) string {
	for _, j := range s.Jobs {
		if config, err := record.Settings(j.Dir); err == nil && len(config) > 0 { // of a job that has begun
			if path := config["init.checkpoint"]; path != "" && path != "null" {
				return page.InlineCode(path)
			}
			break
		}
	}
	return fresh
}

// startWords says what the runs of an arm start from, in the words of its configuration.
func (v *View) startWords(s *setting) string {
	if s.arm.From == "" {
		return v.givenStart(s, "fresh weights from seed")
	}
	text := fmt.Sprintf("`%s`, its %s checkpoint", s.arm.From, s.arm.Checkpoint)
	if s.arm.As != "" {
		text += fmt.Sprintf(" as `%s`, adapters merged", s.arm.As)
	}
	return text
}

// meanTime is the mean time of the finished jobs of a setting, a dash where it is not known.
func meanTime(s *setting) string {
	var seconds []float64
	for _, j := range s.Jobs {
		if j.State == record.StateDone && j.Seconds > 0 {
			seconds = append(seconds, j.Seconds)
		}
	}
	if len(seconds) == 0 {
		return "–"
	}
	return page.Duration(stat.Mean(seconds))
}

// writeJobs shows every job, best first, with a column for each swept key while there are few.
func (v *View) writeJobs(d *page.Document) {
	if len(v.Jobs) == 0 {
		return
	}
	d.Heading(2, "Jobs")
	table := page.LinesOf(v.Jobs[:shownRows(len(v.Jobs))])
	table.Column(">job", v.link)
	keys := v.KeyColumns()
	for _, k := range keys {
		table.Column(">"+page.TableCode([]string{k.Key}), func(j sweeps.Job) string { return page.Plain(k.Cell(j)) })
	}
	if keys == nil {
		table.Column("overrides", func(j sweeps.Job) string { return page.TableCode(v.Own(j)) })
	}
	table.Column("state", v.stateCell)
	v.ObjectiveColumns(table)
	if len(v.Opt.Constraints) > 0 || slices.ContainsFunc(v.Jobs, sweeps.Violates) {
		table.Column(">violation", v.ViolationCell)
	}
	if len(v.runs()) > 0 && v.Opt.Study != nil {
		split := v.split()
		table.Column(">reward on "+page.Plain(split), func(j sweeps.Job) string { return v.scoreCell(j, split) })
	}
	table.Column(">epochs", sweeps.EpochsCell)
	table.Column(">time", sweeps.TimeCell)
	d.Table(table.Header, table.Rows)
	if n := len(table.Rows); n < len(v.Jobs) {
		d.Paragraph("These are the best %d of %s; `run status` shows more, and `sweep.jsonl` holds all.", n, page.Plural(len(v.Jobs), "job"))
	}
}

// scoreCell is what a job's last policy scores on a split, a dash for a job that is not compared.
func (v *View) scoreCell(j sweeps.Job, split string) string {
	for _, s := range v.settings {
		for _, run := range s.runs {
			if run.Dir == j.Dir {
				return armLine{arm: s, runs: []*record.Run{run}, policy: s.last()}.scored(split, "reward", meanCell)
			}
		}
	}
	return "–"
}

// stateCell is a job's state, with what it needs to be read right.
func (v *View) stateCell(j sweeps.Job) string {
	text := page.Plain(j.State)
	switch {
	case v.Infeasible(j):
		text += ", infeasible"
	case len(v.Opt.Objectives) > 1 && v.Front[j.Number]:
		text += ", on the front"
	}
	if j.Attempts > 1 {
		text += fmt.Sprintf(" (%s)", page.Plural(j.Attempts, "attempt"))
	}
	return text
}

// writeFailures tells why jobs failed: jobs with one cause together, the log of the first of them.
func (v *View) writeFailures(d *page.Document) {
	groups := v.Failures()
	if len(groups) == 0 {
		return
	}
	d.Heading(2, "Failures")
	failed := v.Count(func(j sweeps.Job) bool { return j.State == record.StateFailed })
	d.Paragraph("%s failed, with %s.", page.Plural(failed, "job"), page.Plural(len(groups), "cause"))
	told := 0
	for i, jobs := range groups {
		if i == sweeps.MaxFailures {
			d.Paragraph("And %s with rarer causes.", page.Plural(failed-told, "job"))
			break
		}
		told += len(jobs)
		first := jobs[0]
		d.Heading(3, "%s", strings.TrimSuffix(page.Plain(cmp.Or(first.Cause, "no cause recorded")), "."))
		d.Paragraph("%s", v.failedJobs(jobs))
		if shared := v.sharedByFailures(jobs); len(shared) > 0 {
			d.Paragraph("All of them have %s, and no finished job has.", page.CodeList(shared))
		}
		if lines := cleanTail(first.Tail); len(lines) > 0 {
			d.Paragraph("The last lines of %s of job %d:", v.logLink(first), first.Number)
			d.CodeBlock(lines)
		}
	}
}

// writeSkipped names the jobs that did not run because of others.
func (v *View) writeSkipped(d *page.Document) {
	var items []string
	for _, j := range v.ByNumber {
		if j.State == sweeps.StateSkipped {
			items = append(items, fmt.Sprintf("Job %d (%s) was skipped: %s.", j.Number, page.CodeList(v.Own(j)), page.Plain(j.Cause)))
		}
	}
	if len(items) > 0 {
		d.List(items...)
	}
}

// shownFailed is how many failed jobs of one cause are told with their overrides.
const shownFailed = 5

// failedJobs lists the jobs of one cause: the first with their overrides, the others by number.
func (v *View) failedJobs(jobs []sweeps.Job) string {
	var parts, numbers []string
	for i, j := range jobs {
		if i >= shownFailed {
			numbers = append(numbers, fmt.Sprint(j.Number))
			continue
		}
		text := fmt.Sprintf("job %d (%s): exit code %d", j.Number, page.CodeList(v.Own(j)), j.ExitCode)
		if j.ExitCode < 0 {
			text = fmt.Sprintf("job %d (%s): ended by a signal", j.Number, page.CodeList(v.Own(j)))
		}
		if j.Attempts > 1 {
			text += fmt.Sprintf(" after %s", page.Plural(j.Attempts, "attempt"))
		}
		parts = append(parts, text)
	}
	text := page.Capital(strings.Join(parts, "; "))
	if len(numbers) > 0 {
		text += fmt.Sprintf("; and alike %s %s", page.Verb(len(numbers), "job", "jobs"), strings.Join(numbers, ", "))
	}
	return text + "."
}

// sharedByFailures are overrides that all failed jobs of a group have and no finished job has: a hint.
func (v *View) sharedByFailures(failed []sweeps.Job) []string {
	if len(failed) < 2 || v.Count(func(j sweeps.Job) bool { return j.State == record.StateDone }) == 0 {
		return nil
	}
	return slices.DeleteFunc(v.Own(failed[0]), func(o string) bool {
		return slices.ContainsFunc(failed, func(j sweeps.Job) bool { return !slices.Contains(j.Overrides, o) }) ||
			slices.ContainsFunc(v.Jobs, func(j sweeps.Job) bool { return j.State == record.StateDone && slices.Contains(j.Overrides, o) })
	})
}

func (v *View) logLink(j sweeps.Job) string {
	if j.Dir == "" {
		return "the log"
	}
	return fmt.Sprintf("[job.log](%s)", v.relative(filepath.Join(j.Dir, "job.log")))
}

// escapes are a terminal's colours and cursor movements.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`)

// cleanTail makes lines of a log printable: without escapes, what a carriage return overwrote, control
// characters and endless lines.
func cleanTail(lines []string) []string {
	var out []string
	for _, line := range lines {
		line = strings.TrimRight(escapes.ReplaceAllString(line, ""), " \r\n")
		line = line[strings.LastIndex(line, "\r")+1:]
		line = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\t' || r == 0x7f {
				return -1
			}
			return r
		}, strings.ToValidUTF8(line, "�"))
		if runes := []rune(line); len(runes) > maxTailColumns {
			line = string(runes[:maxTailColumns]) + " …"
		}
		out = append(out, line)
	}
	return out[max(0, len(out)-maxTailLines):]
}

// meanSD writes the mean and the standard deviation over seeds, whose digits mean nothing where the values are alike.
func meanSD(x []float64) string {
	if len(x) == 0 {
		return "–"
	}
	text := page.Score(slices.Min(x), 0)
	if text != page.Score(slices.Max(x), 0) {
		return page.MeanSE(stat.Mean(x), stat.SD(x))
	} else if len(x) > 1 {
		text += " each"
	}
	return text
}
