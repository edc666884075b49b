package sweeper

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/registry"
	"fulcrum/reports/record"
)

// BestEpoch is the name under which an outcome's metrics hold the epoch of the best checkpoint: 0 for the policy that
// the run began with.
const BestEpoch = "best_epoch"

// Outcome is what a run came to.
type Outcome struct {
	Names     []string                 // of the objectives' metrics
	Values    []float64                // one for each objective, as the run measured it
	Minimize  []bool                   // whether less of it is better
	Violation float64                  // sum of what the constraints are exceeded by; 0 = feasible
	Metrics   map[string]record.Number // everything that could have been an objective
}

// Read reads what the run in a folder came to. The run has ended, well or by its sweep's pruner. A metric that
// the run does not have is an error that names the nearest one.
func (g Goals) Read(dir string) (Outcome, error) {
	var out Outcome
	run, err := record.ReadRun(dir)
	if err != nil {
		return out, err
	}
	s := run.Summary
	if s == nil {
		return out, fmt.Errorf("%s: no summary.json: the run has not ended", dir)
	}
	out.Metrics = metricsOf(run)
	for _, o := range g.Objectives {
		if o.Name == "" {
			if s.Best == nil && g.Optional {
				continue
			}
			if s.Best == nil {
				return out, fmt.Errorf("%s: task=%s measures nothing that a sweep could optimize", dir, s.Task)
			}
			out.add(s.Best.Metric, float64(s.Best.Value), o.Minimizes(s.Best.Mode == "min"))
			continue
		}
		value, err := out.metric("objective", o.Name)
		if err != nil {
			return out, fmt.Errorf("%s: %w", dir, err)
		}
		out.add(o.Name, value, o.Minimizes(false))
	}
	for _, c := range g.Constraints {
		value, err := out.metric("constraint", c.Name)
		if err != nil {
			return out, fmt.Errorf("%s: %w", dir, err)
		}
		out.Violation = min(out.Violation+c.Excess(value), worst)
	}
	if s.Best != nil && s.Best.Phase != "" { // no objective: it comes last
		out.Metrics[BestEpoch] = record.Number(s.Best.Epoch)
	}
	return out, nil
}

func (o *Outcome) add(name string, value float64, minimize bool) {
	o.Names, o.Values, o.Minimize = append(o.Names, name), append(o.Values, value), append(o.Minimize, minimize)
}

func (o *Outcome) metric(what, name string) (float64, error) {
	if v, ok := o.Metrics[name]; ok {
		return float64(v), nil
	}
	return 0, registry.Unknown(what, name, slices.Sorted(maps.Keys(o.Metrics)))
}

// metricsOf returns a run's numbers by name: those of the epoch that its best checkpoint comes from (of the first
// evaluation, where that is the initial policy), its seconds, and its evaluations as
// eval.SPLIT.POLICY.METRIC; the reward also without METRIC.
func metricsOf(run *record.Run) map[string]record.Number {
	m := map[string]record.Number{Seconds: record.Number(run.Summary.WallSeconds)}
	put := func(row record.Row, prefix string) {
		for field := range row.Fields {
			if v, ok := row.Number(field); ok {
				m[prefix+field] = record.Number(v)
			}
		}
	}
	for _, row := range run.EvalRows {
		name := evalPrefix + row.Text("split") + "." + row.Text("policy")
		put(row, name+".")
		if v, ok := row.Number("reward"); ok {
			m[name] = record.Number(v)
		}
	}
	best := run.Summary.Best
	if best == nil {
		return m
	}
	for _, row := range run.EvalRows {
		if best.Epoch == 0 && row.Text("split") == "val" && row.Text("policy") == "init" {
			put(row, "val_")
		}
	}
	for _, row := range run.Epochs {
		if row.Phase == best.Phase && row.Epoch == best.Epoch {
			put(row, "")
		}
	}
	if strings.TrimSpace(best.Metric) != "" {
		m[best.Metric] = best.Value
	}
	return m
}
