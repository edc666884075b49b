package workload

import (
	"fmt"

	"fulcrum/beamdata"
	"fulcrum/experiments/job"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// PointerData is a run's data as the phases see it. Sources over the same set are shared, so that what
// they cache (cosines) is computed once.
type PointerData struct {
	bundle  *beamdata.Bundle
	sources map[*beamdata.Set]*pointer.Source
	paired  map[*beamdata.Set]*beamdata.Set // with control=placebo: the queries of a training set that another has a pool of the size of
	seen    *beamdata.Set                   // training queries that are evaluated; nil: none
	ask     func(*beamdata.Set) pointer.Ask // scores selections in place of a reader; nil: none does
	endAt   int                             // recorded candidates of fewer examples end with a Stop; 0 = none do
	control string                          // what training rewards are subject to
	seed    int64                           // of it
	// validated is record.DataSummary.Validated
	validated string
}

func NewPointerData(b *beamdata.Bundle) *PointerData {
	return &PointerData{bundle: b, sources: map[*beamdata.Set]*pointer.Source{},
		paired: map[*beamdata.Set]*beamdata.Set{}}
}

func (d *PointerData) source(set *beamdata.Set) *pointer.Source {
	if d.sources[set] == nil {
		d.sources[set] = pointer.NewSource(set)
		d.sources[set].EndRecorded(d.endAt)
		if d.ask != nil {
			d.sources[set].ScoreBy(d.ask(set))
		}
	}
	return d.sources[set]
}

// training returns the source that a phase learns from.
func (d *PointerData) training(set *beamdata.Set) (selector.Source, error) {
	if d.control == "placebo" {
		if d.paired[set] == nil {
			d.paired[set] = d.bundle.Paired(set)
		}
		set = d.paired[set]
	}
	src := d.source(set)
	if err := src.Control(d.control, d.seed); err != nil {
		return nil, usage.Errorf("%v", err)
	}
	return src, nil
}

// Serve makes recorded candidates end as the policy's own selections do.
func (d *PointerData) Serve(p *pointer.Policy) {
	if opt := p.Options(); opt.Stop.Enabled {
		d.endAt = *opt.ShotNum
	}
	for _, src := range d.sources {
		src.EndRecorded(d.endAt)
	}
}

// trained returns n training queries, evenly spread, whose selections can be scored; nil where none can.
func (d *PointerData) trained(n int) *beamdata.Set {
	for _, set := range []*beamdata.Set{d.bundle.Online, d.bundle.RCE, d.bundle.Records} {
		if set.Len() > 0 && (set.Scorer != nil || d.ask != nil) {
			return set.Subset(beamdata.Spread(n, set.Len()))
		}
	}
	return nil
}

// none refuses a phase that has nothing recorded to learn from: nothing was given with key, or validation took the queries.
func (d *PointerData) none(phase, what, key string) error {
	why := " (" + key + ")"
	if n := d.bundle.Counts["train_query_is_also_in_val_beams"]; n > 0 {
		why = fmt.Sprintf(" left: %d of its %d training queries are in data.val_beams too, and validation queries train nothing", n,
			d.bundle.All.Len())
	} else if read := d.bundle.All; read != nil && d.bundle.Val != nil {
		why = fmt.Sprintf(" left (%s): validation has %d of the %d queries that were read", key, d.bundle.Val.Len(), read.Len())
		if d.bundle.Val.Len() < read.Len() {
			why += ", and the others have no candidates left: see \"not used\" above"
		}
	}
	return usage.Errorf("schedule: phase %s needs %s, and data.name=%s has none%s", phase, what, d.bundle.Name, why)
}

// Demos are the recorded beams.
func (d *PointerData) Demos(phase string) (selector.Source, error) { return d.Beams(phase) }

// Beams are the recorded beams that sft and rce imitate.
func (d *PointerData) Beams(phase string) (selector.Source, error) {
	set := firstSet(d.bundle.RCE, d.bundle.Records)
	if set == nil {
		return nil, d.none(phase, "recorded beams", "data.beams")
	}
	return d.training(set)
}

// Records are the recorded groups of offline GRPO.
func (d *PointerData) Records(phase string) (selector.Source, error) {
	set := firstSet(d.bundle.Records, d.bundle.RCE)
	if set == nil {
		return nil, d.none(phase, "recorded groups", "data.records")
	}
	return d.training(set)
}

// Online are the queries of rollouts, with the reader that scores them.
func (d *PointerData) Online(phase string) (selector.Source, error) {
	if d.ask != nil {
		return d.Records(phase)
	}
	if all := d.bundle.All; d.bundle.Online.Len() == 0 && all.Len() > 0 && all.Scorer != nil {
		return nil, d.none(phase, "queries to sample for", "data.train_ratio")
	}
	if d.bundle.Online.Len() == 0 || d.bundle.Online.Scorer == nil {
		return nil, usage.Errorf("schedule: phase %s samples new selections, and data.name=%s has no reader to score them "+
			"(data.reader)", phase, d.bundle.Name)
	}
	return d.training(d.bundle.Online)
}

// ValidationData returns what validation needs.
func (d *PointerData) ValidationData(c *job.Config, shots int) phases.Data {
	out := phasesData(c, c.RCE.Average)
	out.Val, out.EvalName, out.Shots = d.source(d.bundle.Val), d.bundle.EvalName, shots
	if c.Compatible() {
		by := c.Entries.Reference
		out.Normalize, out.ValLoss = by.Normalize(c.Data.Normalize), by.ValLoss(c)
	}
	if d.bundle.Eval.Len() > 0 {
		out.Eval = d.source(d.bundle.Eval)
	}
	if d.seen != nil {
		out.Train = d.source(d.seen)
	}
	out.EvalBatch = EvalBatch(d.bundle.Val, d.bundle.Eval, d.seen)
	return out
}

// EvalBatch is the number of queries in a pass without gradient over any of the sets.
func EvalBatch(sets ...*beamdata.Set) int {
	largest := 1
	for _, set := range sets {
		for i := range set.Len() {
			largest = max(largest, set.PoolSize(i))
		}
	}
	return queriesOfPass(largest)
}

// queriesOfPass is phases.EvalBatch, or fewer where pools are so large that their rows would fill the memory.
func queriesOfPass(pool int) int { return max(1, min(phases.EvalBatch, 1<<18/pool)) }

// ShotsOf is S: selector.shot_num, else that of the checkpoint, else that of the data.
func ShotsOf(p *pointer.Policy, b *beamdata.Bundle) (int, error) {
	if n := p.Options().ShotNum; n != nil {
		return *n, nil
	}
	if b.Shots == 0 { // pools alone
		return 0, usage.Errorf("selector.shot_num: nothing says how many examples to choose, no checkpoint and no data: want selector.shot_num=N")
	}
	return b.Shots, nil
}
