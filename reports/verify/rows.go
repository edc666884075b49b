package verify

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// sameNumber allows for the order of a sum and the last digit of another processor.
func sameNumber(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b))
}

// exact writes a number as metrics.jsonl does.
func exact(x float64) string { return string(record.AppendNumber(nil, x)) }

// sums adds up a metric over the steps of an epoch, in their order, as the training did: a number, or a list by its places.
type sums struct {
	n      int
	of     []float64
	listed bool
}

// phaseRows is how far the rows of a phase have been read.
type phaseRows struct {
	sums  map[string]*sums // of the epoch, by metric
	rows  int              // steps of the epoch
	ended int              // steps at the end of the epoch before
}

// rows reads metrics.jsonl line by line: an epoch is the mean of its steps, none of which is missing, and
// TensorBoard's events say the same.
func (c *runCheck) rows() error {
	events, err := c.readEvents()
	if err != nil {
		return err
	}
	every, ok := c.run.SettingNumber("logging", "log_every_steps")
	if !ok {
		every = 1
	}
	phases, order := map[string]*phaseRows{}, record.NewMetricOrder()
	matched, line, steps, epochs, means := 0, 0, 0, 0, 0
	err = record.EachRow(c.dir, func(parsed record.Row) error {
		line++
		row := numberedRow{parsed, line}
		if row.Kind != record.KindStep {
			c.others = append(c.others, row)
		}
		if payload := string(record.EventOf(parsed, order)); events != nil && payload != "" {
			matched++
			if !events[payload] {
				c.wrong(row, row.at(), "its numbers", "no such event in "+record.EventFilesPattern)
			}
		}
		p := phases[row.Phase]
		if p == nil {
			p = &phaseRows{sums: map[string]*sums{}}
			phases[row.Phase] = p
		}
		switch row.Kind {
		case record.KindStep:
			steps++
			p.step(row)
		case record.KindEpoch:
			epochs++
			if row.Step-p.ended == p.rows {
				means++
				c.epoch(p.sums, row)
			} else if every == 1 {
				c.wrong(row, "steps of "+row.at(), fmt.Sprint(row.Step-p.ended), fmt.Sprintf("%d rows of kind step", p.rows))
			}
			p.ended, p.rows, p.sums = row.Step, 0, map[string]*sums{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if steps+epochs > 0 {
		c.checked("%s and %s (%d of them against their steps)", page.Plural(steps, "step row"), page.Plural(epochs, "epoch row"), means)
	}
	if means < epochs {
		c.note("%s left out steps (logging.log_every_steps=%g): %s cannot be computed again", record.MetricsFile, every,
			page.Plural(epochs-means, "epoch mean"))
	}
	if events != nil {
		c.checked("%s of TensorBoard", page.Plural(matched, "event"))
	}
	return nil
}

func (p *phaseRows) step(row numberedRow) {
	p.rows++
	for name := range row.Fields {
		x, number := row.Number(name)
		values := row.Numbers(name)
		if number {
			values = []float64{x}
		}
		if values == nil {
			continue
		}
		s := p.sums[name]
		if s == nil {
			s = &sums{of: make([]float64, len(values)), listed: !number}
			p.sums[name] = s
		}
		s.n++
		for i, x := range values[:min(len(values), len(s.of))] {
			s.of[i] += x
		}
	}
}

// epoch compares an epoch's row with the means of its steps' numbers and the sums of their lists.
func (c *runCheck) epoch(all map[string]*sums, row numberedRow) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		if stated := row.Numbers(name); s.listed && !slices.EqualFunc(stated, s.of, sameNumber) {
			c.wrong(row, name+" of "+row.at(), fmt.Sprint(stated), fmt.Sprint(s.of)+", the sum of its steps")
		}
		mean := s.of[0] / float64(s.n)
		if stated, ok := row.Number(name); !s.listed && !(ok && sameNumber(stated, mean)) {
			text := "nothing"
			if ok {
				text = exact(stated)
			}
			c.wrong(row, name+" of "+row.at(), text, exact(mean)+", the mean of its steps")
		}
	}
}

// evaluations compares rows of kind eval with the means of evals.jsonl: an evaluation that was made again has several lines of scores. The
// number of checkpoints that the best policy is said to have been chosen from, for which its verdict is corrected, is that of the epochs.
func (c *runCheck) evaluations() error {
	var all []record.Evaluation
	err := record.EachJSON(filepath.Join(c.dir, record.EvalsFile), func(e record.Evaluation) error {
		all = append(all, e)
		return e.Validate()
	})
	if err != nil {
		return err
	}
	of := func(e record.Evaluation, row numberedRow) bool {
		return row.Kind == record.KindEval && row.Text("split") == e.Split && row.Text("policy") == e.Policy && row.Phase == e.Phase &&
			row.Epoch == e.Epoch
	}
	averaged := []string{"reward", "accuracy", "recorded_reward", "top1_accuracy", "pair_accuracy"}
	n, chosenFrom, most := 0, 1, 0.0 // from the initial policy
	if c.run.Setting("task") == "evaluate" {
		most = 5.1e-5 // the official accuracy is rounded to two digits of a percent
	}
	for _, row := range c.others {
		switch row.Kind {
		case record.KindEpoch:
			chosenFrom++
		case record.KindEval:
			n++
		}
		wrong := map[string]string{}
		for i, e := range all {
			stated, ok := row.Number(e.Metric)
			if before, seen := wrong[e.Metric]; !ok || !of(e, row) || seen && before == "" || !slices.Contains(averaged, e.Metric) {
				continue
			}
			mean := e.Mean()
			wrong[e.Metric] = fmt.Sprintf("%s, the mean of %s (%s:%d)", exact(mean), page.Plural(len(e.Scores), "question"), record.EvalsFile, i+1)
			if sameNumber(stated, mean) || math.Abs(stated-mean) <= most {
				wrong[e.Metric] = ""
			}
		}
		for _, metric := range slices.Sorted(maps.Keys(wrong)) {
			if stated, _ := row.Number(metric); wrong[metric] != "" {
				c.wrong(row, metric+" of "+row.at(), exact(stated), wrong[metric])
			}
		}
	}
	for i, e := range all {
		wrong := func(what, stated, recomputed string) {
			c.mismatch(Mismatch{File: record.EvalsFile, Line: i + 1, What: fmt.Sprintf("%s of %s on %s", what, e.Policy, e.Split),
				Stated: stated, Recomputed: recomputed})
		}
		opened := e.Split == record.Sealed // after the run had ended: opened.json has its own digest
		if !opened && !slices.ContainsFunc(c.others, func(row numberedRow) bool { return of(e, row) }) {
			wrong(e.Metric, page.Plural(len(e.Scores), "score"), "no such evaluation in "+record.MetricsFile)
		}
		if e.Policy == record.PolicyBest && e.Split == "val" && chosenFrom > 1 && e.ChosenFrom != chosenFrom {
			wrong("chosen_from", fmt.Sprint(e.ChosenFrom), fmt.Sprint(chosenFrom))
		}
	}
	if n > 0 {
		c.checked("%s against the scores of every question", page.Plural(n, "evaluation"))
	}
	return nil
}

// best is the best checkpoint by its rule, from the rows; as stated where the rule had to give way.
func (c *runCheck) best(stated *record.BestSummary) *record.BestSummary {
	if stated == nil || stated.Reason != "" || c.run.Setting("task") == "evaluate" {
		return stated
	}
	klMax, bounded := c.run.SettingNumber("checkpoint", "best", "kl_max")
	again, found, highest, loss, of := *stated, false, 0.0, 0.0, "" // loss and phase of the highest
	for _, row := range c.others {
		prefix, phase := "val_", row.Phase
		if row.Kind == record.KindEval && row.Text("policy") == record.PolicyInit && row.Text("split") == "val" {
			prefix, phase = "", record.PolicyInit
		} else if row.Kind != record.KindEpoch {
			continue
		}
		x, ok := row.Number(prefix + strings.TrimPrefix(stated.Metric, "val_"))
		kl, _ := row.Number(prefix + "kl")
		behind := highest - x
		if stated.Mode == "min" {
			behind = -behind
		}
		noise, _ := row.Number("val_paired_error") // the latest within one of the highest
		lost, _ := row.Number(prefix + "loss")
		top := !found || behind < 0 || behind == 0 && phase == of && lost < loss // what has learnt more, where the scores are the same
		if ok && !math.IsNaN(x) && (!bounded || kl <= klMax) && (top || noise > 0 && behind <= noise) {
			if top {
				highest, loss, of = x, lost, phase
			}
			found, again.Value, again.Phase, again.Epoch = true, record.Number(x), phase, row.Epoch
			again.Checkpoint = filepath.Join("checkpoints", fmt.Sprintf("%s_epoch%d.safetensors", phase, row.Epoch))
		}
	}
	return &again
}

// unfinished finds a run that says it is done although a phase of its schedule is not.
func (c *runCheck) unfinished(s *record.Summary) {
	schedule, _ := c.run.Setting("schedule").([]any)
	for _, entry := range schedule {
		name, _ := entry.(string)
		want, _ := c.run.SettingNumber(name, "epochs")
		var got record.PhaseSummary
		for _, phase := range s.Phases {
			if phase.Name == name {
				got = phase
			}
		}
		if s.State == record.StateDone && s.Task == "train" && got.Stopped == "" && want != 0 && got.Epochs != int(want) {
			c.mismatch(Mismatch{File: record.SummaryFile, What: "state", Stated: s.State,
				Recomputed: fmt.Sprintf("unfinished: %s has %d of %g epochs", name, got.Epochs, want)})
		}
	}
}
