package verify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// sortedKeys are the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// sameNumber allows for the order of a sum and the last digit of another processor.
func sameNumber(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b))
}

// exact writes a number as metrics.jsonl does.
func exact(x float64) string { return string(record.AppendNumber(nil, x)) }

// epochSums adds up the steps of an epoch, as the training did.
type epochSums struct {
	steps  int
	values map[string][]float64
	lists  map[string][]float64 // sums
}

func (s *epochSums) add(r record.Row) {
	s.steps++
	for name := range r.Fields {
		if x, ok := r.Number(name); ok {
			s.values[name] = append(s.values[name], x)
		} else if list := r.Numbers(name); list != nil {
			sum := s.lists[name]
			if sum == nil {
				sum = make([]float64, len(list))
			}
			for i, x := range list[:min(len(list), len(sum))] {
				sum[i] += x
			}
			s.lists[name] = sum
		}
	}
}

// phaseRows is how far the rows of a phase have been read.
type phaseRows struct {
	sums   epochSums
	step   int // last step seen
	offset int // of global steps
	seen   bool
	ended  int // steps at the end of the epoch before
}

// Rows reads metrics.jsonl line by line: steps follow each other, an epoch is the mean of its steps, and
// TensorBoard's events say the same.
func (c *runCheck) Rows() error {
	events, err := readEventFiles(c.dir)
	if err != nil {
		return err
	}
	every, ok := c.run.SettingNumber("logging", "log_every_steps")
	if !ok {
		every = 1
	}
	phases := map[string]*phaseRows{}
	order := record.NewMetricOrder()
	line, steps, epochs, means := 0, 0, 0, 0
	err = record.EachRow(c.dir, func(parsed record.Row) error {
		line++
		row := numberedRow{parsed, line}
		if row.Kind != record.KindStep {
			c.others = append(c.others, row)
		}
		if events != nil && row.Kind != record.KindEvent {
			c.events(events, row, order)
		}
		p := phases[row.Phase]
		if p == nil {
			p = &phaseRows{}
			p.sums = newEpochSums()
			phases[row.Phase] = p
		}
		switch row.Kind {
		case record.KindStep:
			steps++
			c.step(p, row, int(every))
		case record.KindEpoch:
			epochs++
			if row.Step-p.ended == p.sums.steps {
				means++
				c.epoch(p.sums, row)
			} else if every == 1 {
				c.wrong(row, "steps of "+row.at(), fmt.Sprint(row.Step-p.ended), fmt.Sprintf("%d rows of kind step", p.sums.steps))
			}
			p.ended, p.sums = row.Step, newEpochSums()
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
		c.leftEvents(events)
		c.checked("%s of TensorBoard", page.Plural(events.matched, "event"))
	}
	return nil
}

func newEpochSums() epochSums {
	return epochSums{values: map[string][]float64{}, lists: map[string][]float64{}}
}

func (c *runCheck) step(p *phaseRows, row numberedRow, every int) {
	if !p.seen {
		p.seen, p.offset = true, row.GlobalStep-row.Step
	}
	if row.Step != p.step+every {
		c.wrong(row, "step of "+row.Phase, fmt.Sprint(row.Step), fmt.Sprintf("%d: it follows step %d", p.step+every, p.step))
	}
	if row.GlobalStep-row.Step != p.offset {
		c.wrong(row, "global_step of "+row.at(), fmt.Sprint(row.GlobalStep), fmt.Sprint(row.Step+p.offset))
	}
	p.step = row.Step
	p.sums.add(row.Row)
}

// epoch compares an epoch's row with the means of its steps.
func (c *runCheck) epoch(sums epochSums, row numberedRow) {
	for _, name := range sortedKeys(sums.values) {
		mean := stat.Mean(sums.values[name])
		stated, ok := row.Number(name)
		if !ok {
			c.wrong(row, name+" of "+row.at(), "nothing", exact(mean))
		} else if !sameNumber(stated, mean) {
			c.wrong(row, name+" of "+row.at(), exact(stated), exact(mean)+", the mean of its steps")
		}
	}
	for _, name := range sortedKeys(sums.lists) {
		if stated := row.Numbers(name); !slices.EqualFunc(stated, sums.lists[name], sameNumber) {
			c.wrong(row, name+" of "+row.at(), fmt.Sprint(stated), fmt.Sprint(sums.lists[name])+", the sum of its steps")
		}
	}
}

// numberedEvaluation is a line of evals.jsonl and where it stands.
type numberedEvaluation struct {
	record.Evaluation
	line int
}

// evaluations compares rows of kind eval with the means of evals.jsonl, and with the epochs that they repeat.
func (c *runCheck) evaluations() error {
	var all []numberedEvaluation
	line := 0
	err := record.EachJSON(filepath.Join(c.dir, record.EvalsFile), func(e record.Evaluation) error {
		line++
		if err := e.Validate(); err != nil {
			return err
		}
		all = append(all, numberedEvaluation{e, line})
		return nil
	})
	if err != nil {
		return err
	}
	n := 0
	for _, row := range c.others {
		if row.Kind != record.KindEval {
			continue
		}
		n++
		for _, metric := range []string{"reward", "accuracy", "recorded_reward", "top1_accuracy", "pair_accuracy"} {
			if stated, ok := row.Number(metric); ok {
				c.evaluation(row, metric, stated, all)
			}
		}
		c.repeats(row)
	}
	for _, e := range all { // nobody may add scores that no evaluation has made
		if !slices.ContainsFunc(c.others, func(row numberedRow) bool {
			return row.Kind == record.KindEval &&
				sameEvaluation(row, e.Evaluation)
		}) {
			c.mismatch(Mismatch{File: record.EvalsFile, Line: e.line, What: fmt.Sprintf("%s of %s on %s", e.Metric, e.Policy, e.Split),
				Stated: page.Plural(len(e.Scores), "score"), Recomputed: "no such evaluation in " + record.MetricsFile})
		}
	}
	c.chosenFrom(all)
	if n > 0 {
		c.checked("%s against the scores of every question", page.Plural(n, "evaluation"))
	}
	return nil
}

// chosenFrom compares the number of checkpoints that the best policy is said to have been chosen from with the epochs: the
// verdict on it is corrected for that number.
func (c *runCheck) chosenFrom(all []numberedEvaluation) {
	want := 1 // the initial policy
	for _, row := range c.others {
		want += stats.BoolInt(row.Kind == record.KindEpoch)
	}
	for _, e := range all {
		if e.Policy == record.PolicyBest && e.Split == "val" && want > 1 && e.ChosenFrom != want {
			c.mismatch(Mismatch{File: record.EvalsFile, Line: e.line, What: fmt.Sprintf("chosen_from of %s on %s", e.Policy, e.Split),
				Stated: fmt.Sprint(e.ChosenFrom), Recomputed: fmt.Sprint(want)})
		}
	}
}

func sameEvaluation(row numberedRow, e record.Evaluation) bool {
	return row.Text("split") == e.Split && row.Text("policy") == e.Policy && row.Phase == e.Phase && row.Epoch == e.Epoch
}

// evaluation compares one number of an eval row with the mean of its scores. An evaluation that was made again has
// several lines of scores.
func (c *runCheck) evaluation(row numberedRow, metric string, stated float64, all []numberedEvaluation) {
	close := sameNumber
	if c.run.Setting("task") == "evaluate" { // the official accuracy is rounded to two digits of a percent
		close = func(a, b float64) bool { return math.Abs(a-b) <= 5.1e-5 }
	}
	var found *numberedEvaluation
	for i, e := range all {
		if sameEvaluation(row, e.Evaluation) && e.Metric == metric {
			if close(stated, e.Mean()) {
				return
			}
			found = &all[i]
		}
	}
	if found != nil {
		c.wrong(row, metric+" of "+row.at(), exact(stated), fmt.Sprintf("%s, the mean of %s (%s:%d)", exact(found.Mean()),
			page.Plural(len(found.Scores), "question"), record.EvalsFile, found.line))
	}
}

// repeats compares the evaluation at the end of a phase with its last epoch, whose validation it repeats.
func (c *runCheck) repeats(row numberedRow) {
	if row.Text("split") != "val" || row.Text("policy") != row.Phase {
		return
	}
	var last *numberedRow
	for i, o := range c.others {
		if o.Kind == record.KindEpoch && o.Phase == row.Phase {
			last = &c.others[i]
		}
	}
	if last == nil || last.Epoch != row.Epoch {
		return
	}
	for _, name := range sortedKeys(row.Fields) {
		stated, ok := row.Number(name)
		if want, has := last.Number("val_" + name); ok && has && !sameNumber(stated, want) {
			c.wrong(row, name+" of "+row.at(), exact(stated), fmt.Sprintf("%s, as at the end of %s (line %d)", exact(want), last.at(), last.line))
		}
	}
}

// summary computes summary.json again as far as rows and scores decide it.
func (c *runCheck) summary() error {
	s := c.run.Summary
	if s == nil {
		c.note("there is no %s: the run has not ended", record.SummaryFile)
		return nil
	}
	again := *s
	again.Phases, again.Warnings, again.Findings, again.Resumes = []record.PhaseSummary{}, []string{}, slices.Clone(s.Findings)[:0], 0
	if s.Best != nil {
		best := *c.best(s.Best)
		again.Best = &best
	}
	again.AddRecorded(c.run)
	for i := len(again.Findings); i < len(s.Findings); i++ { // the doctor's words about the machine are in no row
		if c.ofMachine(s.Findings[i]) {
			again.Findings = append(again.Findings, s.Findings[i])
		}
	}
	var err error
	if again.Evaluations, err = results.Stages(c.run.Evaluations, stats.DefaultOptions()); err != nil {
		return err
	}
	again.Overrides = c.run.Overrides
	if seed, ok := c.run.SettingNumber("seed"); ok {
		again.Seed = int64(seed)
	}
	stated, err := tree(s)
	if err != nil {
		return err
	}
	recomputed, err := tree(again)
	if err != nil {
		return err
	}
	c.checked("%s of %s", page.Plural(c.compareTrees("", stated, recomputed), "value"), record.SummaryFile)
	c.unfinished(s)
	return nil
}

// ofMachine says whether a finding may stand in summary.json alone: no event is of its kind.
func (c *runCheck) ofMachine(f record.Finding) bool {
	return !slices.ContainsFunc(c.run.Events, func(e record.Row) bool { return e.Text("event") == f.Check })
}

// best is the best checkpoint by its rule, from the rows; as stated where the rule had to give way.
func (c *runCheck) best(stated *record.BestSummary) *record.BestSummary {
	if stated == nil || stated.Reason != "" || c.run.Setting("task") == "evaluate" {
		return stated
	}
	klMax, bounded := c.run.SettingNumber("checkpoint", "best", "kl_max")
	again := *stated
	found := false
	consider := func(row numberedRow, prefix, phase string, epoch int) {
		x, ok := row.Number(prefix + strings.TrimPrefix(stated.Metric, "val_"))
		kl, _ := row.Number(prefix + "kl")
		if !ok || math.IsNaN(x) || bounded && !(kl <= klMax) {
			return
		}
		better := x > float64(again.Value)
		if stated.Mode == "min" {
			better = x < float64(again.Value)
		}
		if !found || better {
			found, again.Value, again.Phase, again.Epoch = true, record.Number(x), phase, epoch
		}
	}
	for _, row := range c.others {
		switch {
		case row.Kind == record.KindEval && row.Text("policy") == record.PolicyInit && row.Text("split") == "val":
			consider(row, "", record.PolicyInit, 0)
		case row.Kind == record.KindEpoch:
			consider(row, "val_", row.Phase, row.Epoch)
		}
	}
	if !found {
		return stated
	}
	again.Checkpoint = filepath.Join("checkpoints", fmt.Sprintf("%s_epoch%d.safetensors", again.Phase, again.Epoch))
	return &again
}

// unfinished finds a run that says it is done although a phase of its schedule is not.
func (c *runCheck) unfinished(s *record.Summary) {
	schedule, _ := c.run.Setting("schedule").([]any)
	if s.State != record.StateDone || s.Task != "train" {
		return
	}
	for _, name := range schedule {
		phase, _ := name.(string)
		want, ok := c.run.SettingNumber(phase, "epochs")
		at := slices.IndexFunc(s.Phases, func(p record.PhaseSummary) bool { return p.Name == phase })
		if !ok || want == 0 || at >= 0 && (s.Phases[at].Stopped != "" || s.Phases[at].Epochs == int(want)) {
			continue
		}
		epochs := 0
		if at >= 0 {
			epochs = s.Phases[at].Epochs
		}
		c.mismatch(Mismatch{File: record.SummaryFile, What: "state", Stated: s.State,
			Recomputed: fmt.Sprintf("unfinished: %s has %d of %g epochs", phase, epochs, want)})
	}
}

// tree is v as JSON reads it.
func tree(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	return out, jsonwords.Unmarshal(data, &out)
}

// compareTrees compares two JSON values by path and returns how many leaves it saw.
func (c *runCheck) compareTrees(path string, stated, recomputed any) int {
	n := 0
	switch s := stated.(type) {
	case map[string]any:
		r, ok := recomputed.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(s)
		maps.Copy(keys, r)
		for _, key := range sortedKeys(keys) {
			n += c.compareTrees(path+"."+key, s[key], r[key])
		}
		return n
	case []any:
		r, ok := recomputed.([]any)
		if !ok || len(r) != len(s) {
			break
		}
		for i := range s {
			n += c.compareTrees(fmt.Sprintf("%s[%d]", path, i), s[i], r[i])
		}
		return n
	case float64:
		if r, ok := recomputed.(float64); ok && sameNumber(s, r) {
			return 1
		}
	default:
		if s == recomputed {
			return 1
		}
	}
	c.mismatch(Mismatch{File: record.SummaryFile, What: cmp.Or(strings.TrimPrefix(path, "."), "all of it"), Stated: brief(stated),
		Recomputed: brief(recomputed)})
	return 1
}

// brief writes a JSON value in a line.
func brief(v any) string {
	if v == nil {
		return "nothing"
	}
	if list, ok := v.([]any); ok {
		return page.Plural(len(list), "entry")
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return page.Clip(string(data), 120)
}
