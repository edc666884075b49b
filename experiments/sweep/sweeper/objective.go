package sweeper

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/internal/registry"
	"fulcrum/reports/record"
)

// Seconds is the objective of the run's wall time, all attempts together.
const Seconds = "seconds"

// evalPrefix begins the names of a run's evaluations: eval.SPLIT.POLICY, the reward, or eval.SPLIT.POLICY.METRIC.
const evalPrefix = "eval."

// Goal is the direction of an objective.
type Goal int

// Goals: Own is the metric's own.
const (
	Own Goal = iota
	Minimize
	Maximize
)

// Objective is one number that a sweep optimizes.
type Objective struct {
	Name string // of a metric; "" = the run's own best metric
	Goal Goal
}

// String names the objective as a report does.
func (o Objective) String() string {
	if o.Name == "" {
		return "best metric"
	}
	return o.Name
}

// Minimizes reports whether smaller values are better. own is the direction that the run itself gives its
// best metric; it counts where neither the name nor the options decide.
func (o Objective) Minimizes(own bool) bool {
	switch o.Goal {
	case Minimize:
		return true
	case Maximize:
		return false
	}
	if o.Name == "" {
		return own
	}
	name := o.Name[strings.LastIndexByte(o.Name, '.')+1:] // eval.SPLIT.POLICY.METRIC
	name = strings.TrimPrefix(name, "val_")
	return name == Seconds || name == "step_seconds" || name == "kl" || name == "grad_norm" || name == "loss" ||
		strings.HasSuffix(name, "_loss")
}

// Constraint is an inequality that a result must satisfy to be feasible.
type Constraint struct {
	Name  string  // of a metric, as in Objective
	Op    string  // <=, <, >=, >
	Bound float64 // of the metric
}

// String returns the constraint as it is written in hydra.sweeper.constraints.
func (c Constraint) String() string { return fmt.Sprintf("%s %s %g", c.Name, c.Op, c.Bound) }

// Excess returns how far value is on the wrong side of the bound, in units of the metric; 0 when it satisfies the
// constraint. The bound itself violates < and > by the smallest amount there is.
func (c Constraint) Excess(value float64) float64 {
	over := value - c.Bound
	if c.Op == ">=" || c.Op == ">" {
		over = -over
	}
	switch {
	case over < 0, over == 0 && len(c.Op) == 2:
		return 0
	case over == 0:
		return smallest
	case over > 0:
		return over
	}
	return worst // NaN satisfies nothing
}

// Violations are finite, so that they can be stored and compared.
const (
	smallest = 5e-324
	worst    = 1e300
)

// Goals are what the results of a sweep are judged by.
type Goals struct {
	Objectives  []Objective
	Constraints []Constraint
	Optional    bool // a run that measures nothing by itself has no objective; without it, that is an error
}

var constraintPattern = regexp.MustCompile(`^\s*([A-Za-z_][\w.]*)\s*(<=|>=|<|>)\s*(\S+)\s*$`)

// Goals parses objective, direction and constraints.
func (o Options) Goals() (Goals, error) {
	var g Goals
	names, err := textList("objective", o.Objective, "a metric's name, a list of names, or null")
	if err != nil {
		return g, err
	}
	if names == nil {
		names = []string{""}
	}
	directions, err := textList("direction", o.Direction, "minimize, maximize, a list of them, or null")
	if err != nil {
		return g, err
	}
	if len(directions) > 0 && len(directions) != len(names) {
		return g, option.Errorf("direction", "want one for each of the %d objectives, got %d", len(names), len(directions))
	}
	seen := map[string]bool{}
	for i, name := range names {
		if seen[name] {
			return g, option.Errorf("objective", "%s is named twice", name)
		}
		seen[name] = true
		if err := known(name); err != nil {
			return g, option.Errorf("objective", "%v", err)
		}
		objective := Objective{Name: name}
		if len(directions) > 0 {
			switch d := directions[i]; d {
			case "minimize", "min":
				objective.Goal = Minimize
			case "maximize", "max":
				objective.Goal = Maximize
			default:
				return g, option.Errorf("direction", "want minimize or maximize, got %q", d)
			}
		}
		g.Objectives = append(g.Objectives, objective)
	}
	var faults []error
	for i, text := range o.Constraints {
		m := constraintPattern.FindStringSubmatch(text)
		if m == nil {
			faults = append(faults, option.Errorf(fmt.Sprintf("constraints.%d", i),
				"want a metric, <=, <, >= or >, and a number, such as 'val_kl <= 0.1', got %q", text))
			continue
		}
		bound, err := strconv.ParseFloat(m[3], 64)
		if err != nil || bound != bound {
			faults = append(faults, option.Errorf(fmt.Sprintf("constraints.%d", i), "want a number behind %s, got %q", m[2], m[3]))
			continue
		}
		if err := known(m[1]); err != nil {
			faults = append(faults, option.Errorf(fmt.Sprintf("constraints.%d", i), "%v", err))
		}
		g.Constraints = append(g.Constraints, Constraint{m[1], m[2], bound})
	}
	return g, errors.Join(faults...)
}

// known refuses a name that no run can have measured, before the first job has run for nothing. Whether the runs
// at hand measure it shows only at their end.
func known(name string) error {
	if name == "" || strings.HasPrefix(name, evalPrefix) && strings.Count(name, ".") >= 2 {
		return nil
	}
	names := []string{Seconds, evalPrefix + "SPLIT.POLICY"}
	for _, m := range record.Metrics() {
		if m.Numeric() && m.Name != "reward" { // that is an evaluation's: eval.SPLIT.POLICY
			names = append(names, m.Name)
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	slices.Sort(names)
	return registry.Unknown("metric", name, names)
}

// textList reads null, one text or a list of texts; an empty list is refused.
func textList(key string, value any, want string) ([]string, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case string:
		if v != "" {
			return []string{v}, nil
		}
	case []any:
		var out []string
		for _, item := range v {
			s, ok := item.(string)
			if !ok || s == "" {
				return nil, option.Errorf(key, "want %s, got %v", want, value)
			}
			out = append(out, s)
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, option.Errorf(key, "want %s, got %v", want, value)
}
