package runreport

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// reportPhases tells what happened in each phase: what it cost, and a table of its epochs.
func reportPhases(d *page.Document, run *record.Run, s *record.Summary) {
	phases := run.Phases()
	if len(phases) == 0 {
		return
	}
	d.Heading(2, "What happened")
	for _, phase := range phases {
		d.Heading(3, "%s", page.Plain(phase))
		for _, p := range s.Phases {
			if p.Name == phase {
				d.Paragraph("%s", phaseStory(p))
			}
		}
		to := ""
		for _, e := range run.Epochs {
			if e.Phase == phase {
				to = record.KLTo(e)
			}
		}
		if to != "" {
			d.Paragraph("Its KL is that%s, in nats per sequence.", to)
		}
		if table, of := epochTable(run, phase); len(table.Rows) > 0 {
			d.Table(table.Header, table.Rows)
			if n := len(table.Rows); n < of {
				d.Paragraph("These are %d of %d epochs: the first, the last, those with the best validation, and some between. All are in "+
					"[%s](%s), and `run export RUN_FOLDER --what metrics` writes them as a table.", n, of, record.MetricsFile, record.MetricsFile)
			}
		}
	}
}

// phaseStory says how long a phase was, what it cost and why it ended early.
func phaseStory(p record.PhaseSummary) string {
	parts := []string{page.Plural(p.Epochs, "epoch"), page.Plural(p.Steps, "optimizer step")}
	if p.Calls > 0 {
		parts = append(parts, page.Plural(p.Calls, "reader call"))
	}
	text := strings.Join(append(parts, page.Duration(p.Seconds)), ", ") + "."
	if p.Stopped != "" {
		text += " Stopped early: " + page.Plain(p.Stopped) + "."
	}
	return text
}

// epochRows is how many rows a table of epochs has, more or less, where there are more than twice as many.
const epochRows = 20

// shownEpochs are the rows of a table of epochs: of many the first, the last, those with the best validation, and every so many between.
func shownEpochs(run *record.Run, epochs []record.Row) []record.Row {
	if len(epochs) <= 2*epochRows {
		return epochs
	}
	keep := make([]bool, len(epochs))
	for i := range epochRows {
		keep[i*(len(epochs)-1)/(epochRows-1)] = true
	}
	for name, sign := range map[string]float64{"val_loss": -1, "val_reward": 1, "val_accuracy": 1, "val_recorded_reward": 1} {
		best, at := math.Inf(-1), -1
		for i, e := range epochs {
			if x, ok := e.Number(name); ok && sign*x > best {
				best, at = sign*x, i
			}
		}
		if at >= 0 {
			keep[at] = true
		}
	}
	var out []record.Row
	for i, e := range epochs {
		if s := run.Summary; keep[i] || s != nil && s.Best != nil && s.Best.Phase == e.Phase && s.Best.Epoch == e.Epoch {
			out = append(out, e)
		}
	}
	return out
}

// epochTable has a row per epoch, of many some, and a column for every metric that one of them has. It returns how many epochs there are.
func epochTable(run *record.Run, phase string) (*page.Lines[record.Row], int) {
	type column struct {
		name, title string
		format      func(float64) string
	}
	columns := []column{
		{"loss", "loss", sig4}, {"val_loss", "val loss", sig4}, {"kl", "KL", nats3}, {"kl_per_token", "per token", nats3},
		{"val_kl", "val KL", nats3}, {"kl_beta", "β", sig3}, {"mean_ratio", "ratio", sig4}, {"clip_fraction", "clipped", page.Percent},
		{"temperature", "τ", sig3}, {"effective_sample_size", "sample size", sig3},
		{"signal_share", "signal", page.Percent}, {"signal_share_top_k", "after top-k", page.Percent}, {"grad_norm", "grad norm", sig3},
		{"mean_reward", "group reward", sig4}, {"val_reward", "val reward", sig4}, {"val_accuracy", "val accuracy", sig4},
		{"val_recorded_reward", "val recorded reward", sig4},
	}
	if run.Answers() {
		for i, c := range columns {
			if c.name == "mean_reward" {
				columns[i].title = "reward"
				columns = slices.Insert(columns, i+1, column{"reward_std", "group std", sig3}, column{"completion_length", "length", sig3},
					column{"truncated_share", "cut", page.Percent}, column{"entropy", "entropy", sig3})
				break
			}
		}
		columns = append(columns, column{"val_completion_length", "val length", sig3}, column{"val_truncated_share", "val cut", page.Percent})
	}
	epochs := slices.DeleteFunc(slices.Clone(run.Epochs), func(e record.Row) bool { return e.Phase != phase })
	cut := func(e record.Row) bool { return e.Fields["signal_share"] != e.Fields["signal_share_top_k"] }
	if run.Answers() && !slices.ContainsFunc(epochs, cut) {
		columns = slices.DeleteFunc(columns, func(c column) bool { return c.name == "signal_share_top_k" }) // no curriculum
	}
	table := page.LinesOf(shownEpochs(run, epochs))
	table.Column(">epoch", func(e record.Row) string { return fmt.Sprint(e.Epoch) })
	for _, c := range columns {
		if !slices.ContainsFunc(epochs, func(e record.Row) bool { _, ok := e.Number(c.name); return ok }) {
			continue
		}
		table.Column(">"+c.title, func(e record.Row) string {
			if x, ok := e.Number(c.name); ok {
				return c.format(x)
			}
			return "–"
		})
	}
	table.Column("checkpoint", func(e record.Row) string {
		if name := e.Text("checkpoint"); name != "" {
			return fmt.Sprintf("[%s](%s)", page.Plain(strings.TrimSuffix(filepath.Base(name), ".safetensors")), name)
		}
		return "–"
	})
	return table, len(epochs)
}

func nats3(x float64) string { return page.Nats(x, 3) }
func sig3(x float64) string  { return page.Sig(x, 3) }
func sig4(x float64) string  { return page.Sig(x, 4) }
