package runreport

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// reportPhases tells what happened in each phase: a few sentences and a table of its epochs.
func reportPhases(d *page.Document, run *record.Run, s *record.Summary) {
	phases := run.Phases()
	if len(phases) == 0 {
		return
	}
	d.Heading(2, "What happened")
	for _, phase := range phases {
		d.Heading(3, "%s", page.Plain(phase))
		d.Paragraph("%s", phaseStory(run, s, phase))
		if table, of := epochTable(run, phase); len(table.Rows) > 0 {
			d.Table(table.Header, table.Rows)
			if n := len(table.Rows); n < of {
				d.Paragraph("These are %d of %d epochs: the first, the last, those with the best validation, and some between. All are in "+
					"[%s](%s), and `run export RUN_FOLDER --what metrics` writes them as a table.", n, of, record.MetricsFile, record.MetricsFile)
			}
		}
		for _, e := range run.Events {
			if e.Phase == phase && e.Text("severity") == "warning" {
				d.Paragraph("Warning in epoch %d: %s", e.Epoch, page.Plain(e.Text("message")))
			}
		}
	}
}

// phaseStory says how long a phase was, what signal it had and where its KL lay.
func phaseStory(run *record.Run, s *record.Summary, phase string) string {
	var out []string
	for _, p := range s.Phases {
		if p.Name == phase {
			calls := ""
			if p.Calls > 0 {
				calls = page.Plural(p.Calls, "reader call") + ", "
			}
			out = append(out, fmt.Sprintf("%s, %s, %s%s.", page.Plural(p.Epochs, "epoch"), page.Plural(p.Steps, "optimizer step"), calls,
				page.Duration(p.Seconds)))
			if p.Stopped != "" {
				out = append(out, "Stopped early: "+page.Plain(p.Stopped)+".")
			}
		}
	}
	out = append(out, scoreStory(run, phase)...)
	steps := run.StepsOf(phase)
	if steps == nil {
		return strings.Join(out, " ")
	}
	out = append(out, curriculumStory(run, phase)...)
	if share, ok := columnMean(steps, "signal_share"); ok {
		text := fmt.Sprintf("%s of its groups had a learning signal", page.Percent(share))
		if top, ok := columnMean(steps, "signal_share_top_k"); ok && page.Percent(top) != page.Percent(share) {
			text += fmt.Sprintf(", %s after the curriculum", page.Percent(top))
		}
		out = append(out, text+".")
	}
	if ess, ok := columnMean(steps, "effective_sample_size"); ok {
		out = append(out, fmt.Sprintf("The weights of a %s spread over %s %s on average (effective sample size).",
			run.Wording("query", "question"), page.Sig(ess, 3), run.Wording("candidates", "completions")))
	}
	out = append(out, completionStory(run, phase)...)
	out = append(out, klStory(run, phase, steps)...)
	if clip, ok := columnMean(steps, "clip_fraction"); ok {
		out = append(out, fmt.Sprintf("%s of the ratios lay outside the clip range.", page.Percent(clip)))
	}
	return strings.Join(out, " ")
}

// scoreStory says what a phase did to the validation score, from what it was given, and to its losses.
func scoreStory(run *record.Run, phase string) []string {
	var out []string
	for _, metric := range []string{"reward", "accuracy", "recorded_reward"} {
		before, ok := run.ScoreBefore(phase, metric)
		_, y := run.EpochSeries(phase, "val_"+metric)
		if !ok || len(y) == 0 || metric == "accuracy" && len(out) > 0 {
			continue
		}
		text := fmt.Sprintf("The mean validation %s went from %s to %s", results.MetricName(metric), sig4(before), sig4(y[len(y)-1]))
		if best := slices.Max(y); len(y) > 1 && best > y[len(y)-1] && best > before {
			at := slices.IndexFunc(run.Epochs, func(e record.Row) bool {
				x, ok := e.Number("val_" + metric)
				return ok && x == best && e.Phase == phase
			})
			text += fmt.Sprintf(", with its highest value, %s, after epoch %d", sig4(best), run.Epochs[at].Epoch)
		}
		out = append(out, text+".")
	}
	_, loss := run.EpochSeries(phase, "loss")
	_, val := run.EpochSeries(phase, "val_loss")
	if len(loss) > 1 {
		text := fmt.Sprintf("The training loss %s", wentFrom(loss, sig4))
		if len(val) > 1 {
			text += fmt.Sprintf(", the validation loss %s", wentFrom(val, sig4))
		}
		out = append(out, text+".")
	}
	return out
}

// curriculumStory says which of its groups' candidates a phase has learned from.
func curriculumStory(run *record.Run, phase string) []string {
	early, ok := run.SettingNumber(phase, "curriculum", "early_epochs")
	top, okTop := run.SettingNumber(phase, "curriculum", "early_top_k")
	if !ok || !okTop || early < 1 || top < 1 {
		return nil
	}
	late := "all of them"
	if k, ok := run.SettingNumber(phase, "curriculum", "late_top_k"); ok {
		late = fmt.Sprintf("the best %g", k)
	}
	epochs := "its first epoch"
	if early > 1 {
		epochs = fmt.Sprintf("its first %g epochs", early)
	}
	return []string{fmt.Sprintf("By its curriculum it learned in %s from the best %g %s of each group, then from %s.", epochs, top,
		run.Wording("candidates", "completions"), late)}
}

func klStory(run *record.Run, phase string, steps *record.Steps) []string {
	_, kl := run.EpochSeries(phase, "kl")
	to := ""
	for _, e := range run.Epochs {
		if e.Phase == phase {
			to = record.KLTo(e)
		}
	}
	if len(kl) == 0 {
		if _, val := run.EpochSeries(phase, "val_kl"); len(val) > 0 && to != "" {
			return []string{"Validation KL" + to + " " + wentFrom(val, nats3) + " nats per sequence."}
		}
		return nil
	}
	text := "KL" + to + " per epoch " + wentFrom(kl, nats3) + " nats per sequence"
	if _, token := run.EpochSeries(phase, "kl_per_token"); len(token) > 0 {
		text += " (" + strings.TrimPrefix(strings.TrimPrefix(wentFrom(token, nats3), "went from "), "was ") + " per token)"
	}
	out := []string{text + "."}
	low, okLow := run.SettingNumber(phase, "kl", "target_min")
	high, okHigh := run.SettingNumber(phase, "kl", "target_max")
	if okLow && okHigh && run.Setting(phase, "kl", "controller") != "fixed" {
		inside := list.Count(kl, func(x float64) bool { return x >= low && x <= high })
		out = append(out, fmt.Sprintf("It lay within its band %.4g to %.4g in %d of %s.", low, high, inside, page.Plural(len(kl), "epoch")))
	}
	if _, beta := chart.FinitePoints(steps.Globals(), steps.Column("kl_beta")); len(beta) > 0 {
		if first, last := beta[0], beta[len(beta)-1]; first == last {
			out = append(out, fmt.Sprintf("β stayed at %s.", page.Sig(first, 3)))
		} else {
			out = append(out, fmt.Sprintf("β went from %s to %s.", page.Sig(first, 3), page.Sig(last, 3)))
		}
	}
	return out
}

// completionStory says how the texts of a phase changed: their length and how many were cut.
func completionStory(run *record.Run, phase string) []string {
	_, length := run.EpochSeries(phase, "completion_length")
	if len(length) == 0 {
		return nil
	}
	if _, sampled := run.EpochSeries(phase, "reward_std"); len(sampled) == 0 {
		return []string{fmt.Sprintf("Its targets have %s tokens on average.", sig3(length[len(length)-1]))}
	}
	out := "The mean length of completions " + wentFrom(length, sig3) + " tokens"
	if _, cut := run.EpochSeries(phase, "truncated_share"); len(cut) > 0 {
		out += ", the share cut at the limit " + wentFrom(cut, page.Percent)
	}
	return []string{out + "."}
}

// wentFrom says how an epoch metric moved: was 2.3, or went from 2.3 to 1.9.
func wentFrom(y []float64, format func(float64) string) string {
	first, last := format(y[0]), format(y[len(y)-1])
	if len(y) == 1 || first == last {
		return "was " + last
	}
	return "went from " + first + " to " + last
}

// columnMean is the mean over the steps that have a finite value.
func columnMean(s *record.Steps, name string) (float64, bool) {
	_, y := chart.FinitePoints(s.Globals(), s.Column(name))
	return stat.Mean(y), len(y) > 0
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
		{"loss", "loss", sig4}, {"val_loss", "val loss", sig4}, {"kl", "KL", nats3}, {"val_kl", "val KL", nats3}, {"kl_beta", "β", sig3},
		{"mean_ratio", "ratio", sig4}, {"clip_fraction", "clipped", page.Percent}, {"temperature", "τ", sig3},
		{"effective_sample_size", "sample size", sig3},
		{"signal_share", "signal", page.Percent}, {"signal_share_top_k", "after top-k", page.Percent}, {"grad_norm", "grad norm", sig3},
		{"mean_reward", "group reward", sig4}, {"val_reward", "val reward", sig4}, {"val_accuracy", "val accuracy", sig4},
		{"val_recorded_reward", "val recorded reward", sig4},
	}
	if run.Answers() {
		for i, c := range columns {
			if c.name == "mean_reward" {
				columns[i].title = "reward"
				columns = slices.Insert(columns, i+1, column{"reward_std", "group std", sig3}, column{"completion_length", "length", sig3},
					column{"truncated_share", "cut", page.Percent},
					column{"entropy", "entropy", sig3})
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
