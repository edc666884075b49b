package configs

import (
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// The basic sweeper: overrides with sweeps to the override lists of jobs.

// maxJobs bounds a sweep; a typing error in a range should not fill the machine.
const maxJobs = 1_000_000

// decimalOf is the exact value of a number as it is printed: 0.1 is one tenth.
func decimalOf(n *Node) *big.Rat {
	r, ok := new(big.Rat).SetString(n.pyStr())
	if !ok {
		return new(big.Rat)
	}
	return r
}

func decimalNode(r *big.Rat, isFloat bool) *Node {
	if isFloat {
		f, _ := r.Float64()
		return newFloat(f)
	}
	return &Node{Kind: Int, Text: r.Num().String()}
}

// values lists the strings a sweep takes, re-printed. group lists the options of the key's group.
func (e *elem) values(group func() ([]string, error)) ([]string, error) {
	var out []string
	switch e.kind {
	case choiceSweep:
		return list.Map(e.items, (*elem).reprint), nil // shuffle() has already reordered them
	case rangeSweep:
		start, step := decimalOf(e.rng[0].node), decimalOf(e.rng[2].node)
		if step.Sign() == 0 {
			return nil, errorf("Invalid range values: the step must not be zero")
		}
		count := e.rangeCount()
		if !count.IsInt64() || count.Int64() > maxJobs {
			return nil, errorf("range(): more than %d values", maxJobs)
		}
		isFloat := e.isFloatRange()
		for x := start; len(out) < int(count.Int64()); x = new(big.Rat).Add(x, step) {
			out = append(out, decimalNode(x, isFloat).pyStr())
		}
	case globSweep:
		options, err := group()
		if err != nil {
			return nil, err
		}
		for _, o := range options {
			if anyMatch(e.glob[0], o) && !anyMatch(e.glob[1], o) {
				out = append(out, optionText(o))
			}
		}
	case intervalSweep:
		return nil, errorf("BasicSweeper does not support sweep type : INTERVAL_SWEEP (use hydra/sweeper=random, tpe, cmaes or sobol)")
	}
	if e.shuffled {
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out, nil
}

// optionText writes the name of an option: as it is, where that reads back as the name.
func optionText(name string) string {
	if o, err := ParseOverride("g=" + name); err == nil && o.value.isText() && o.value.quote == 0 && o.value.node.Text == name {
		return name
	}
	return withQuotes(name, '\'')
}

// rangeCount is the number of values of a range.
func (e *elem) rangeCount() *big.Int {
	start, stop, step := decimalOf(e.rng[0].node), decimalOf(e.rng[1].node), decimalOf(e.rng[2].node)
	count := new(big.Rat).Quo(new(big.Rat).Sub(stop, start), step)
	if count.Sign() <= 0 {
		return new(big.Int)
	}
	whole := new(big.Int).Quo(count.Num(), count.Denom())
	if !count.IsInt() {
		whole.Add(whole, big.NewInt(1))
	}
	return whole
}

func anyMatch(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fnmatch(p, s) })
}

// patternPart is a wildcard, a set or a character of a pattern.
var patternPart = regexp.MustCompile(`(?s)\[(?:!.|[^!])[^\]]*\]|.`)

// fnmatch matches Python's fnmatch patterns: * ? [ab] [!ab].
func fnmatch(pattern, text string) bool {
	expression, err := regexp.Compile("(?s)^" + patternPart.ReplaceAllStringFunc(pattern, func(part string) string {
		switch {
		case part == "*":
			return ".*"
		case part == "?":
			return "."
		case strings.HasPrefix(part, "[!"):
			return "[^" + regexp.QuoteMeta(part[2:len(part)-1]) + "]"
		case part[0] == '[' && part != "[":
			return "[" + regexp.QuoteMeta(part[1:len(part)-1]) + "]"
		}
		return regexp.QuoteMeta(part)
	}) + "$")
	return err == nil && expression.MatchString(text)
}

// sweepOverrides lists the task overrides of a sweep: hydra.sweeper.params first; of two with the
// same key and prefix the first position and the last value count.
func (c *Composer) sweepOverrides(master *Composed) ([]*Override, error) {
	params, err := master.hydraValue("sweeper.params")
	if err != nil {
		return nil, err
	}
	var all, out []*Override
	if params != nil && params.Kind == Map {
		for i, k := range params.Keys {
			o, err := ParseOverride(k.Text + "=" + params.Vals[i].pyStr())
			if err != nil {
				return nil, errorAt(params.Vals[i].Origin, "hydra.sweeper.params: %v", err)
			}
			o.file = params.Vals[i].Origin
			all = append(all, o)
		}
	}
	all = append(all, list.Filter(c.overrides, func(o *Override) bool { return !o.isHydra() })...)
	at := map[string]int{}
	for _, o := range all {
		if i, ok := at[o.key()]; ok {
			out[i] = o
			continue
		}
		at[o.key()] = len(out)
		out = append(out, o)
	}
	return out, nil
}

// key is what jobs are told apart by: the key with its prefix, +a.b.
func (o *Override) key() string { return opPrefix[o.Op] + o.fullKey() }

// printed is the value of an override without a sweep, re-printed.
func (o *Override) printed() string {
	switch {
	case o.value == nil:
		return "null"
	case o.value.kind == extendElem: // Hydra re-prints it as the list of its arguments
		return (&elem{kind: listElem, items: o.value.items}).reprint()
	}
	return o.value.reprint()
}

// axis expands one override to the strings key=value of the jobs.
func (c *Composer) axis(o *Override) ([]string, error) {
	if !o.isSweep() {
		return []string{o.key() + "=" + o.printed()}, nil
	}
	values, err := o.value.values(func() ([]string, error) {
		if !c.lib.group(o.Key) {
			return nil, errorf("glob() works on config groups: %s is none", o.Key)
		}
		return c.lib.list(o.Key, false)
	})
	if err != nil {
		return nil, errorAt(o.where(), "%v", err)
	}
	return list.Map(values, func(v string) string { return o.key() + "=" + v }), nil
}

// product is the cartesian product of the axes; the rightmost varies fastest.
func product(axes [][]string) ([][]string, error) {
	total := 1
	for _, values := range axes {
		if total *= len(values); total > maxJobs {
			return nil, errorf("the sweep has more than %d jobs", maxJobs)
		}
	}
	jobs := make([][]string, total)
	flat := make([]string, total*len(axes))
	for j := range jobs {
		row := flat[j*len(axes) : (j+1)*len(axes) : (j+1)*len(axes)]
		k := j
		for i := len(axes) - 1; i >= 0; i-- {
			n := len(axes[i])
			row[i] = axes[i][k%n]
			k /= n
		}
		jobs[j] = row
	}
	return jobs, nil
}

// ExpandSweep returns the override lists of all jobs of a sweep, each checked by composing it.
func ExpandSweep(req Request) ([][]string, error) {
	req.Multirun = true
	c, err := NewComposer(req)
	if err != nil {
		return nil, err
	}
	master, err := c.Compose()
	if err != nil {
		return nil, err
	}
	if s := master.Choice("hydra/sweeper"); s != "basic" {
		return nil, errorf("hydra/sweeper=%s chooses its jobs while they run: only the basic sweeper's can be listed", s)
	}
	return c.Expand(master)
}

// checkSweeps refuses sweeps where they cannot run.
func (c *Composer) checkSweeps(overrides []*Override, multirun bool) error {
	var faults Errors
	for _, o := range overrides {
		if !o.isSweep() {
			continue
		}
		switch {
		case multirun && o.isHydra():
			faults = append(faults, errorf("Sweeping over Hydra's configuration is not supported : '%s'", o.Text))
		case multirun:
		case o.value.kind == choiceSweep && o.value.plain:
			faults = append(faults, errorf("Ambiguous value for argument '%s': to use it as a list, use key=[value1,value2]; to use it as text, "+
				"quote it: key=\\'value1,value2\\'; to sweep over it, add --multirun", o.Text))
		default:
			faults = append(faults, errorf("Sweep parameters '%s' requires --multirun: add it to run every value, or give one value", o.Text))
		}
	}
	return faults.err()
}

// Jobs expands the sweep of a composed multirun request to the override lists of its jobs.
func (c *Composer) Jobs(master *Composed) ([][]string, error) {
	overrides, err := c.sweepOverrides(master)
	if err != nil {
		return nil, err
	}
	axes := make([][]string, len(overrides))
	for i, o := range overrides {
		if axes[i], err = c.axis(o); err != nil {
			return nil, err
		}
	}
	return product(axes)
}

// Expand returns the override lists of a sweep's jobs after composing each of them. What acts in none of them is refused.
func (c *Composer) Expand(master *Composed) ([][]string, error) {
	jobs, err := c.Jobs(master)
	if err != nil {
		return nil, err
	}
	idle := append(master.Typed(c.req.Overrides), master.Own()...)
	for i, j := range jobs {
		job, err := c.Job(master, i, j)
		if err != nil {
			return nil, err
		}
		idle = job.Idle(idle)
	}
	return jobs, master.RefuseIdle(idle)
}

// Job composes job number num of a sweep: Hydra's overrides of the request, then the job's own.
func (c *Composer) Job(master *Composed, num int, overrides []string) (*Composed, error) {
	own, err := parseOverrides(overrides)
	if err != nil {
		return nil, err
	}
	all := append(list.Filter(c.overrides, (*Override).isHydra), own...)
	if err := c.checkSweeps(all, false); err != nil {
		return nil, err
	}
	job, err := c.compose(all, false, jobInfo{num: num, inside: true})
	if err != nil {
		return nil, err
	}
	if master == nil {
		return job, nil
	}
	for _, part := range []string{"launcher", "sweeper"} {
		where := "job " + itoa(num) + " [" + strings.Join(overrides, " ") + "]"
		if was, is := master.Choice("hydra/"+part), job.Choice("hydra/"+part); was != is {
			return nil, errorf("%s changes hydra/%s from '%s' to '%s': it must be selected before the sweep starts, in the primary config or on "+
				"the command line", where, part, was, is)
		}
		was, is := master.tree.Find("hydra."+part), job.tree.Find("hydra."+part)
		if was != is && (was == nil || is == nil || !was.equal(is)) {
			return nil, errorf("%s changes hydra.%s: it must be configured before the sweep starts, in the primary config or on the command "+
				"line", where, part)
		}
	}
	return job, nil
}
