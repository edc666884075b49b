package runreport

import (
	"cmp"
	"fmt"

	"fulcrum/internal/program"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// manyTimes is beyond how many times as many questions nobody is told to take them.
const manyTimes = 100

// reportNext says what to try next, as far as the records tell: what mends the findings, what would settle the verdict or go on, another
// seed, and how to use what was trained.
func reportNext(d *page.Document, run *record.Run, s *record.Summary, stages []record.StageResult) {
	if s.State != record.StateDone || len(run.Phases()) == 0 {
		return
	}
	var items []string
	for _, c := range causesOf(gravestFirst(s.Findings)) {
		if key := cmp.Or(c.Set, c.Key); key != "" && c.Severity != "note" {
			items = append(items, fmt.Sprintf("%s: the finding %s of %s says why.", page.InlineCode(key), page.Plain(c.Check), page.Plain(c.Phase)))
		}
	}
	serious := len(items) > 0 // what follows would not mend it
	stage := PlannedResult(stages)
	if stage != nil && !serious {
		for _, g := range gainsOf(stage, results.TableOf(stages, *stage), stages) {
			if n := g.by.Questions; g.by.Verdict == stats.NotSeparable && n > stage.Queries && n < manyTimes*stage.Queries {
				items = append(items, run.InItsWords(fmt.Sprintf("More questions in %s: these are %s, and a gain over %s of this size would take "+
					"about %s.", page.Plain(stage.Split), page.Thousands(stage.Queries), page.Plain(g.over), page.Thousands(stats.RoundUp(n)))))
				break
			}
		}
	}
	if b := s.Best; b != nil && len(s.Phases) > 0 && !serious {
		if last := s.Phases[len(s.Phases)-1]; last.Name == b.Phase && last.Epochs == b.Epoch && last.Stopped == "" {
			items = append(items, fmt.Sprintf("%s: its last epoch is the best by %s.",
				page.InlineCode(fmt.Sprintf("%s.epochs=%d", b.Phase, 2*b.Epoch)), page.Plain(b.Metric)))
		}
	}
	items = append(items, fmt.Sprintf("Another seed, as this is one: %s, then `run report FOLDER OTHER` compares both.",
		program.Command("--rerun", "FOLDER", fmt.Sprintf("seed=%d", s.Seed+1))))
	if s.Best != nil && !s.Best.Untrained() {
		use := []string{"task=predict", "init.checkpoint=FOLDER", "data=beams", "data.beams=FILE", "data.embeddings=FILE"}
		if run.Answers() {
			use = []string{"task=generate", fmt.Sprintf("policy=%v", run.Setting("policy")), "init.checkpoint=FOLDER", "generate.in=FILE"}
		}
		items = append(items, "Use it: "+program.Command(use...)+".")
	}
	d.Heading(2, "What to try next")
	d.List(items...)
}
