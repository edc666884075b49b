package reports

import (
	"fmt"
)

// reportResults shows every stage on every split, with gains on the same questions.
func reportResults(d *document, s *Summary, stages []StageResult) {
	if len(stages) == 0 {
		return
	}
	d.heading(2, "Results")
	if b := s.Best; b != nil {
		where := fmt.Sprintf("%s, epoch %d", plain(b.Phase), b.Epoch)
		if b.Phase == "" || b.Phase == policyInit {
			where = "the initial policy"
		}
		text := fmt.Sprintf("Best checkpoint by %s (%s): %s, %s, [%s](%s).", plain(b.Metric), b.Mode, sig(float64(b.Value), 4), where, plain(b.Checkpoint), b.Checkpoint)
		if b.Reason != "" {
			text += " " + plain(b.Reason)
		}
		d.paragraph("%s", text)
	}
	d.paragraph("Gains are differences on the same questions, with paired 95%% intervals.")
	for from := 0; from < len(stages); {
		to := from
		for to < len(stages) && sameTable(stages[from], stages[to]) {
			to++
		}
		d.heading(3, "%s on %s (%s, %s)", capital(stages[from].Metric), plain(stages[from].Split), plural(stages[from].Queries, "query"), plural(stages[from].Shots, "shot"))
		d.table([]string{"policy", ">mean ± SE", ">gain over similarity", "", ">gain over initial policy", ""}, stageRows(stages[from:to]))
		from = to
	}
}

func sameTable(a, b StageResult) bool {
	return a.Split == b.Split && a.Metric == b.Metric && a.Shots == b.Shots
}

func stageRows(stages []StageResult) [][]string {
	var rows [][]string
	for _, s := range stages {
		row := []string{plain(s.title()), fmt.Sprintf("%.4f ± %.4f", s.Mean, s.SE)}
		for _, p := range []*Paired{s.OverSimilarity, s.OverInit} {
			gain, verdict := gainCells(p)
			row = append(row, gain, verdict)
		}
		rows = append(rows, row)
	}
	return rows
}

// gainCells writes a comparison as +0.0191 [+0.0105, +0.0279] and its verdict.
func gainCells(p *Paired) (gain, verdict string) {
	if p == nil {
		return "–", ""
	}
	if p.Changed == 0 {
		return "0", "same scores"
	}
	return fmt.Sprintf("%s [%s, %s]", fixed(p.Mean, 4), fixed(p.BCa.Low, 4), fixed(p.BCa.High, 4)), string(p.Verdict)
}
