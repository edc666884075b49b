package runreport

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// WriteReport writes report.md and report.html of a run folder from what the run recorded: equal records give equal
// bytes. It embeds the plots that are there; RebuildReport draws them first.
func WriteReport(dir string) error {
	run, err := record.ReadRun(dir)
	if err != nil {
		return err
	}
	text, err := ReportOf(run)
	if err != nil {
		return err
	}
	more, err := Explore(run)
	if err != nil {
		return err
	}
	if err := page.WriteLively(dir, text, more); err != nil {
		return err
	}
	if width, ok := run.SettingNumber("report", "figure", "width"); ok {
		return chart.Paper{Width: width}.Write(filepath.Join(dir, FiguresFolder), PaperFigures(run))
	}
	return nil
}

// RebuildReport draws the plots and writes report.md and report.html anew.
func RebuildReport(dir string) error {
	run, err := record.ReadRun(dir)
	if err != nil {
		return err
	}
	if err := DrawPlots(run); err != nil {
		return err
	}
	return WriteReport(dir)
}

func ReportOf(run *record.Run) (string, error) {
	stages, err := results.StagesOf(run)
	if err != nil {
		return "", err
	}
	var d page.Document
	s := cmp.Or(run.Summary, &record.Summary{}) // none: still running, or killed
	title := cmp.Or(s.Title, filepath.Base(run.Dir))
	if s.Data.Name != "" { // an experiment's name is not that of the data
		title += " (data=" + s.Data.Name + ")"
	}
	d.Heading(1, "%s", page.Plain(title))
	for _, line := range headlines(run, s, stages) {
		d.Paragraph("%s", line)
	}
	figures := drawnFigures(run.Dir, Figures())
	first := slices.IndexFunc(figures, func(f Figure) bool { return f.Name == scoreOf(run) })
	if first >= 0 {
		reportFigures(&d, run, 0, figures[first])
		figures = slices.Delete(figures, first, first+1)
	}
	tables := resultTables(stages)
	reportResults(&d, run, stages, tables)
	reportExamples(&d, run)
	reportNext(&d, run, s, stages)
	d.Fold()
	if behind := behindVerdict(run, s, stages); len(behind) > 0 {
		d.Heading(2, "Behind the verdict")
		d.List(behind...)
	}
	reportFindings(&d, run, s)
	reportMoreResults(&d, run, s, tables)
	reportPhases(&d, run, s)
	if len(figures) > 0 {
		d.Heading(2, "Plots")
		reportFigures(&d, run, first+1, figures...)
	}
	if err := reportCompletions(&d, run); err != nil {
		return "", err
	}
	reportEvents(&d, run, s)
	reportLimits(&d, run, s, stages)
	reportSetup(&d, run, s)
	reportData(&d, s)
	reportFiles(&d, run, s)
	return d.Text(), nil
}

// headlines are the first paragraphs: how it ended, and what it came to.
func headlines(run *record.Run, s *record.Summary, stages []record.StageResult) (out []string) {
	switch s.State {
	case record.StateDone:
	case "":
		out = append(out, "**This run has not ended.** The report shows what is recorded so far.")
	default:
		line := "**This run " + s.State + ".**"
		switch {
		case s.State == record.StatePruned:
			line = "**This run was ended early by its sweep's pruner.**"
			for _, e := range run.Events {
				if e.Text("event") == "pruned" {
					line += " " + page.Plain(e.Text("message")) + "."
				}
			}
		case s.State == record.StateInterrupted:
			line = "**This run was interrupted.** `run resume FOLDER`, with the folder of this report, goes on."
		case s.Error != "":
			line = "**This run failed:** " + page.Plain(s.Error)
		}
		out = append(out, line)
	}
	answer, entries := verdictOf(run, s, stages)
	if answer != "" {
		out = append(out, "**Verdict.** "+answer)
		if len(entries) > 0 {
			out = append(out, "- "+strings.Join(entries, "\n- "))
		}
	} else if why := s.Best.RuledOut(); why != "" {
		out = append(out, fmt.Sprintf("**The best policy is the initial one**, whatever the epochs are worth: %s.", page.Plain(why)))
	} else if s.Best.Untrained() {
		out = append(out, fmt.Sprintf("**The best policy is the initial one.** No epoch did better on val by %s.", page.Plain(s.Best.Metric)))
	}
	out = append(out, openedOf(run, stages)...)
	if s.Data.Notice != "" {
		notice := page.Plain(s.Data.Notice)
		if s.Data.Synthetic {
			notice = "**Synthetic data.** " + page.Capital(strings.TrimPrefix(notice, "synthetic data: "))
		}
		out = append(out, page.Capital(strings.TrimSuffix(notice, "."))+".")
	}
	return out
}

func reportSetup(d *page.Document, run *record.Run, s *record.Summary) {
	d.Heading(2, "What was run")
	if len(s.Command) > 0 {
		d.Paragraph("To repeat it:")
		d.Code(page.ShellCommand(s.Command))
	}
	var rows [][]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	overrides := s.Overrides
	if len(overrides) == 0 {
		overrides = run.Overrides
	}
	if len(overrides) > 0 {
		add("overrides", "`"+strings.Join(overrides, "` `")+"`")
	}
	if s.State != "" {
		add("seed", fmt.Sprint(s.Seed))
		add("device", fmt.Sprintf("%s, %s", s.Device, page.Plural(s.Threads, "thread")))
		add("started", s.Start)
		add("wall time", page.Duration(s.WallSeconds))
	}
	if s.Resumes > 0 {
		add("resumed", page.Plural(s.Resumes, "time"))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Versions)) {
		if name != "config" { // a digest: it stands with the others
			add(name, page.Plain(s.Versions[name]))
		}
	}
	if len(rows) > 0 {
		d.Table([]string{"", ""}, rows)
	}
	d.Paragraph("The whole configuration is in [.hydra/config.yaml](.hydra/config.yaml).")
}

func reportData(d *page.Document, s *record.Summary) {
	data := s.Data
	if data.Name == "" {
		return
	}
	d.Heading(2, "Data")
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(data.Counts)) {
		what := name
		if rest, ok := strings.CutPrefix(name, "eval_"); ok && data.EvalName != "" {
			what = data.EvalName + "_" + rest
		}
		if phase, ok := strings.CutSuffix(what, "_queries"); ok && phase != "val" && phase != data.EvalName && !strings.Contains(phase, "train") {
			what = "training queries (" + strings.Replace(phase, "records", "grpo", 1) + ")"
		}
		rows = append(rows, []string{page.Plain(strings.ReplaceAll(what, "_", " ")), page.Thousands(data.Counts[name])})
	}
	if data.Shots > 0 {
		rows = append(rows, []string{"shots", fmt.Sprint(data.Shots)})
	}
	for _, reason := range slices.Sorted(maps.Keys(data.Skipped)) {
		what := "not used: " + page.Plain(strings.Replace(record.SkippedText(reason, 2), "2 ", "", 1))
		if at := data.SkippedAt[reason]; at != "" {
			what += " (" + page.Plain(at) + ")"
		}
		rows = append(rows, []string{what, page.Thousands(data.Skipped[reason])})
	}
	if len(data.Skipped) == 0 {
		rows = append(rows, []string{"skipped records", "0"})
	}
	for _, of := range s.Account {
		if of.Seen > 0 && of.PerEpoch > 0 {
			rows = append(rows, []string{fmt.Sprintf("seen by %s, each once an epoch", of.Phase), fmt.Sprintf("%s × %s of %s",
				page.Plural(of.Seen/of.PerEpoch, "epoch"), page.Thousands(of.PerEpoch), page.Thousands(of.Queries))})
		}
	}
	for _, u := range data.UnknownKeys {
		what := fmt.Sprintf("unknown key %s of a %s in %s, from line %d on", page.Plain(u.Key), page.Plain(u.Object), page.Plain(u.File), u.First)
		if u.Nearest != "" {
			what += fmt.Sprintf(" (did you mean %s?)", page.Plain(u.Nearest))
		}
		rows = append(rows, []string{what, page.Thousands(u.Count)})
	}
	d.Table([]string{"", ">"}, rows)
	for _, text := range []string{data.HeldOut, data.Validated, data.LeftOut} {
		if text != "" {
			d.Paragraph("%s.", page.Plain(page.Capital(text)))
		}
	}
	if len(data.Methods) == 0 {
		return
	}
	d.Paragraph("What the recorded candidates of training and validation queries earn, by how they were made:")
	d.Table([]string{"gen_method", ">candidates", ">mean reward"}, list.Map(data.Methods, func(m record.MethodSummary) []string {
		return []string{page.Plain(cmp.Or(m.Name, "(not said)")), page.Thousands(m.Candidates), page.Sig(float64(m.Mean), 4)}
	}))
}

// reportFigures shows figures that were drawn, the first of them as the number behind before; a caption that several share stands once.
func reportFigures(d *page.Document, run *record.Run, before int, figures ...Figure) {
	for i := 0; i < len(figures); {
		from := i
		for ; i < len(figures) && figures[i].Caption == figures[from].Caption; i++ {
			d.Paragraph("![%s](%s/%s.png)", strings.ReplaceAll(figures[i].Name, "_", " "), PlotsFolder, figures[i].Name)
		}
		number := fmt.Sprintf("Figure %d", before+from+1)
		if i > from+1 {
			number = fmt.Sprintf("Figures %d to %d", before+from+1, before+i)
		}
		d.Paragraph("*%s.* %s", number, run.InItsWords(figures[from].Caption))
	}
}

func reportExamples(d *page.Document, run *record.Run) {
	examples := run.Examples
	if len(examples) == 0 {
		return
	}
	var rows [][]string
	if run.Answers() {
		d.Heading(2, "%s", run.InItsWords("Answers before and after"))
		d.Paragraph("%s, evenly from the largest gain of reward to the largest loss.",
			run.InItsWords("Greedy answers to held-out questions that changed"))
		for _, e := range examples {
			question := strings.TrimSpace(pictureCell(e.Pictures) + " " + page.Plain(page.Clip(e.Pictures.Asked(e.Question), questionWidth)))
			rows = append(rows, []string{question, page.TextCell(e.Answer, answerWidth), answerOf(e.Before),
				page.Sig(e.RewardBefore, 3), answerOf(e.After), page.Sig(e.RewardAfter, 3)})
		}
		d.Table([]string{run.InItsWords("question"), "target", "initial policy", ">reward", "final policy", ">reward"}, rows)
		return
	}
	d.Heading(2, "Selections before and after")
	d.Paragraph("Held-out questions whose selection changed, evenly from the largest gain of reward to the largest loss.")
	for _, e := range examples {
		rows = append(rows, []string{page.Plain(e.Question), page.Plain(e.Answer), itemList(e.Before), page.Sig(e.RewardBefore, 3),
			itemList(e.After), page.Sig(e.RewardAfter, 3)})
	}
	d.Table([]string{"question", "answer", "initial policy chose", ">reward", "final policy chose", ">reward"}, rows)
}

func answerOf(items []record.ItemText) string {
	if len(items) == 0 {
		return ""
	}
	return page.TextCell(items[0].Answer, answerWidth)
}

func itemList(items []record.ItemText) string {
	return strings.Join(list.Map(items, func(item record.ItemText) string {
		return page.Plain(item.Question) + " → " + page.Plain(item.Answer)
	}), "<br>")
}

func reportEvents(d *page.Document, run *record.Run, s *record.Summary) {
	d.Heading(2, "Events")
	items := list.Map(list.Filter(s.Warnings, func(w string) bool {
		return !slices.ContainsFunc(run.Events, func(e record.Row) bool { return e.Text("message") == w })
	}), func(w string) string { return "warning: " + page.Plain(w) })
	for _, e := range run.Events {
		if slices.ContainsFunc(s.Findings, func(f record.Finding) bool {
			return f.Check == e.Text("event") && f.Message == e.Text("message") && f.Phase == e.Phase && f.Epoch == e.Epoch && f.Step == e.Step
		}) {
			continue
		}
		where := ""
		if e.Phase != "" {
			where = fmt.Sprintf(" (%s, epoch %d, step %d)", e.Phase, e.Epoch, e.Step)
		}
		items = append(items, cmp.Or(e.Text("severity"), "note")+": "+page.Plain(cmp.Or(e.Text("message"), e.Text("event")))+where)
	}
	if len(items) == 0 {
		d.Paragraph("None.")
		return
	}
	d.List(items...)
}

func reportLimits(d *page.Document, run *record.Run, s *record.Summary, stages []record.StageResult) {
	items := []string{"One run is one seed: the intervals hold the spread over questions, not the spread over seeds. A sweep over `seed` " +
		"shows the latter."}
	if s.Data.Synthetic {
		items = append(items, "Synthetic data shows that the method works as built, not what it is worth on real questions.")
	}
	for _, phase := range run.Phases() {
		if steps := run.StepsOf(phase); run.Setting(phase, "rollout") == "offline" && steps != nil && steps.Column("mean_ratio") != nil {
			items = append(items, fmt.Sprintf("%s learns from recorded %s that were not sampled from the policy: its ratios are a trust "+
				"region, not importance weights.", page.Plain(phase), run.Wording("candidates", "completions")))
		}
	}
	if slices.ContainsFunc(stages, func(r record.StageResult) bool { return r.Policy == record.PolicyOracle }) {
		items = append(items, "The oracle looks at the rewards. No policy can reach it from embeddings alone.")
	}
	if len(stages) > 0 {
		items = append(items, "Intervals are paired by question (Student's t); p-values are from sign-flip permutations. A verdict needs "+
			"this interval and the bootstrap's (BCa) without 0, and p < 0.05; comparisons of phases are corrected for their number (Holm). "+
			"That of the best checkpoint was planned: on held-out questions it stands alone, on val it is corrected for the checkpoints "+
			"that competed, and equal scores have its verdict. An interval is that of its comparison alone, "+
			"corrected for the checkpoints that competed, and the same on every page that makes it.")
	}
	d.Heading(2, "Limits")
	d.List(list.Map(items, run.InItsWords)...)
}

// reportFiles says what lies in the folder, and ends with the digests.
func reportFiles(d *page.Document, run *record.Run, s *record.Summary) {
	d.Heading(2, "Files")
	var items []string
	var rows [][]string
	add := func(name, digest string) {
		if digest != "" {
			rows = append(rows, []string{name, "`" + digest + "`"})
		}
	}
	for _, f := range []struct{ name, what string }{
		{record.SummaryFile, "how the run ended, final numbers"},
		{record.MetricsFile, "every step, epoch, evaluation and event"},
		{record.EvalsFile, "scores of every " + run.Wording("query", run.InItsWords("question")) + ", for paired comparisons"},
		{record.CompletionsFile, "sampled completions with their rewards"},
		{record.RunLogFile, "log"},
		{"checkpoints", "weights and states; `best.safetensors` and `last.safetensors` are links"},
		{PlotsFolder, "plots as PNG and SVG"},
		{".hydra", "configuration and overrides"},
	} {
		if _, err := os.Stat(filepath.Join(run.Dir, f.name)); err == nil {
			items = append(items, fmt.Sprintf("[%s](%s): %s", f.name, f.name, f.what))
		}
	}
	if files, _ := regular.Glob(run.Dir, record.EventFilesPattern); len(files) > 0 {
		items = append(items, "`events.out.tfevents.*`: the same scalars for TensorBoard")
	}
	d.List(items...)
	if m := run.Manifest; m != nil {
		d.Paragraph("`run verify FOLDER` computes every number of this report again from these files. Their digests, taken when the run "+
			"ended, stand in [%s](%s).", record.ManifestFile, record.ManifestFile)
		add("SHA-256 of "+record.ManifestFile, m.SHA256)
	}
	if p := run.Proof; p != nil {
		d.Paragraph("%s (%s, %s). Prove it again: %s.", page.Capital(page.Plain(p.Said)), page.Plain(p.Time), page.Plain(p.Version),
			program.Command(append([]string{"prove", "FOLDER"}, p.Options...)...))
	}
	add("configuration", s.Versions["config"])
	add("data, a digest of what was read", s.Data.Fingerprint)
	if len(rows) > 0 {
		d.Table([]string{"", ""}, rows)
	}
}
