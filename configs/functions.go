package configs

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
)

// The functions of the override grammar: casts, sweeps and what works on them.

// callArgs are the arguments of a call; quoted text has lost its quotes.
type callArgs struct {
	pos   []*elem
	named map[string]*elem
}

// call parses the arguments behind "name(" and evaluates the call.
func (p *valueParser) call(name string, start int) (*elem, error) {
	table := map[string]func(callArgs) (*elem, error){
		"bool": castTo("bool"), "float": castTo("float"), "int": castTo("int"), "json_str": castTo("json_str"), "str": castTo("str"),
		"choice": choice, "extend_list": extendList, "glob": globCall, "interval": intervalCall, "range": rangeCall,
		"shuffle": shuffleCall, "sort": sortCall, "tag": tagCall,
	}
	evaluate := table[name]
	if evaluate == nil {
		known := slices.Sorted(maps.Keys(table))
		hint := "if it is text, quote it"
		if text := strings.TrimSpace(p.s[start:]); strings.HasSuffix(p.s[:start], "=") && !strings.ContainsAny(text, "\"'") {
			hint = "if it is text, quote it: '" + p.s[:start] + "\"" + text + "\"'"
		}
		return nil, p.errorf(start, "Unknown function '%s'%s. Available: %s; %s", name, didYouMean(name, known),
			strings.Join(known, ","), hint)
	}
	args := callArgs{named: map[string]*elem{}}
	if t, n := p.peek(); t == tokParenClose {
		p.pos += n
	} else if err := p.arguments(&args); err != nil {
		return nil, err
	}
	e, err := evaluate(args)
	if err != nil {
		return nil, p.errorf(start, "while evaluating '%s': %v", p.s[start:p.pos], err)
	}
	return e, nil
}

func (p *valueParser) arguments(args *callArgs) error {
	for {
		key := ""
		save := p.pos
		if t, n := p.peek(); t == tokWord {
			p.pos += n
			if t2, n2 := p.peek(); t2 == tokEqual {
				key = p.s[save : save+n]
				p.pos += n2
			} else {
				p.pos = save
			}
		}
		e, err := p.element()
		if err != nil {
			return err
		}
		e.quote = 0
		switch {
		case key == "" && len(args.named) > 0:
			return p.errorf(save, "positional argument follows keyword argument")
		case key == "":
			args.pos = append(args.pos, e)
		case args.named[key] != nil:
			return p.errorf(save, "keyword argument repeated: %s", key)
		default:
			args.named[key] = e
		}
		if closed, err := p.closes(tokParenClose, `"," or ")"`); closed || err != nil {
			return err
		}
	}
}

// bind matches arguments with parameter names; parameters without an argument are nil.
func (a callArgs) bind(params ...string) ([]*elem, error) {
	out := make([]*elem, len(params))
	if len(a.pos) > len(params) {
		return nil, fmt.Errorf("too many positional arguments: got %d, want at most %d", len(a.pos), len(params))
	}
	copy(out, a.pos)
	for name, e := range a.named {
		switch i := slices.Index(params, name); {
		case i < 0:
			return nil, fmt.Errorf("got an unexpected keyword argument '%s'%s: want %s", name, didYouMean(name, params), strings.Join(params, ", "))
		case out[i] != nil:
			return nil, fmt.Errorf("multiple values for argument '%s'", name)
		default:
			out[i] = e
		}
	}
	return out, nil
}

// rest splits off the named arguments that a variadic function takes.
func (a callArgs) rest(names ...string) (map[string]*elem, error) {
	for name := range a.named {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("got an unexpected keyword argument '%s'%s", name, didYouMean(name, names))
		}
	}
	return a.named, nil
}

func extendList(args callArgs) (*elem, error) {
	if _, err := args.rest(); err != nil {
		return nil, err
	}
	for _, e := range args.pos {
		if e.isSweep() || e.kind == extendElem {
			return nil, fmt.Errorf("%s as an argument: want values", e.describe())
		}
	}
	return &elem{kind: extendElem, items: args.pos}, nil
}

func (e *elem) isNull() bool { return e.kind == scalarElem && e.node != nil && e.node.Kind == Null }

func (e *elem) isNumber() bool {
	return e.kind == scalarElem && (e.node.Kind == Int || e.node.Kind == Float)
}

func (e *elem) isText() bool { return e.kind == scalarElem && e.node.Kind == String }

// mismatch is the error for an argument of a wrong type.
func mismatch(param string, e *elem, want string) error {
	return fmt.Errorf("mismatch type argument %s: got %s: want %s", param, e.describe(), want)
}

func choice(args callArgs) (*elem, error) {
	if _, err := args.rest(); err != nil {
		return nil, err
	}
	if len(args.pos) == 0 {
		return nil, fmt.Errorf("empty choice is not legal: want at least one value")
	}
	if first := args.pos[0]; len(args.pos) == 1 && first.kind == choiceSweep && first.plain {
		c := *first
		c.plain = false
		return &c, nil
	}
	for i, a := range args.pos {
		switch {
		case a.kind == choiceSweep:
			return nil, fmt.Errorf("nesting choices is not supported")
		case a.isSweep() || a.kind == extendElem || a.isNull():
			return nil, mismatch(fmt.Sprintf("args[%d]", i), a, "text, a number, a boolean, a list or a mapping")
		}
	}
	return &elem{kind: choiceSweep, items: args.pos}, nil
}

func rangeCall(args callArgs) (*elem, error) {
	b, err := args.bind("start", "stop", "step")
	if err != nil {
		return nil, err
	}
	if b[0] == nil {
		return nil, fmt.Errorf("missing a required argument: 'start'")
	}
	if b[1] == nil || b[1].isNull() { // range(stop)
		b[0], b[1] = scalarOf(newInt(0)), b[0]
	}
	if b[2] == nil {
		b[2] = scalarOf(newInt(1))
	}
	for i, e := range b {
		if !e.isNumber() || e.node.Kind == Float && (math.IsInf(e.node.Num, 0) || math.IsNaN(e.node.Num)) {
			return nil, mismatch([]string{"start", "stop", "step"}[i], e, "a finite number, as in range(start,stop,step)")
		}
	}
	if f, _ := b[2].node.number(); f == 0 {
		return nil, fmt.Errorf("invalid range values: the step must not be zero")
	}
	return &elem{kind: rangeSweep, rng: [3]*elem{b[0], b[1], b[2]}}, nil
}

func intervalCall(args callArgs) (*elem, error) {
	b, err := args.bind("start", "end")
	if err != nil {
		return nil, err
	}
	e := &elem{kind: intervalSweep}
	for i, name := range []string{"start", "end"} {
		if b[i] == nil {
			return nil, fmt.Errorf("missing a required argument: '%s'", name)
		}
		if !b[i].isNumber() {
			return nil, mismatch(name, b[i], "a number, as in interval(start,end)")
		}
		f, _ := b[i].node.number()
		e.rng[i] = scalarOf(newFloat(f))
	}
	return e, nil
}

func globCall(args callArgs) (*elem, error) {
	b, err := args.bind("include", "exclude")
	if err != nil {
		return nil, err
	}
	e := &elem{kind: globSweep}
	for i, x := range b {
		name := []string{"include", "exclude"}[i]
		switch {
		case x == nil && i == 0:
			return nil, fmt.Errorf("missing a required argument: 'include'")
		case x == nil, x.isNull() && i == 1:
		case x.isText():
			e.glob[i] = []string{x.node.Text}
		case x.kind == listElem:
			for _, y := range x.items {
				if !y.isText() {
					return nil, mismatch(name, y, "a pattern or a list of patterns")
				}
				e.glob[i] = append(e.glob[i], y.node.Text)
			}
		default:
			return nil, mismatch(name, x, "a pattern or a list of patterns")
		}
	}
	return e, nil
}

// sequence is the value that sort and shuffle work on: list= or sweep=, one argument, or several as a simple choice.
func (a callArgs) sequence(named map[string]*elem) (*elem, error) {
	if l := named["list"]; l != nil && !l.isNull() {
		if l.kind != listElem {
			return nil, mismatch("list", l, "a list")
		}
		return l, nil
	}
	if s := named["sweep"]; s != nil && !s.isNull() {
		if s.kind != choiceSweep && s.kind != rangeSweep {
			return nil, mismatch("sweep", s, "a choice or a range")
		}
		return s, nil
	}
	for i, e := range a.pos {
		switch {
		case e.isNull(), e.kind == globSweep, e.kind == intervalSweep, e.kind == extendElem:
			return nil, mismatch(fmt.Sprintf("args[%d]", i), e, "a value, a list, a choice or a range")
		case len(a.pos) > 1 && e.isSweep():
			return nil, fmt.Errorf("invalid arguments: %s among several", e.describe())
		}
	}
	switch len(a.pos) {
	case 0:
		return nil, fmt.Errorf("empty input: want values, a list or a sweep")
	case 1:
		return a.pos[0], nil
	}
	return &elem{kind: choiceSweep, items: a.pos, plain: true}, nil
}

func sortCall(args callArgs) (*elem, error) {
	named, err := args.rest("sweep", "list", "reverse")
	if err != nil {
		return nil, err
	}
	reverse := false
	if r := named["reverse"]; r != nil {
		if r.kind != scalarElem || r.node.Kind != Bool {
			return nil, mismatch("reverse", r, "true or false")
		}
		reverse = r.node.Bool
	}
	v, err := args.sequence(named)
	if err != nil {
		return nil, err
	}
	e := *v
	switch e.kind {
	case listElem, choiceSweep:
		if len(args.pos) > 1 {
			for _, x := range e.items {
				if x.kind != scalarElem {
					return nil, fmt.Errorf("invalid arguments: %s among the values to sort", x.describe())
				}
			}
		}
		e.items, err = sorted(e.items, reverse)
		e.shuffled = false
		return &e, err
	case rangeSweep:
		return sortedRange(e, reverse), nil
	}
	return v, nil // one value is sorted
}

func sorted(items []*elem, reverse bool) ([]*elem, error) {
	out := slices.Clone(items)
	var fault error
	less := func(a, b *elem) bool {
		l, err := pyLess(a, b)
		if err != nil {
			fault = err
		}
		return l
	}
	sort.SliceStable(out, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return less(out[i], out[j])
	})
	return out, fault
}

// pyLess is Python's a < b: numbers and booleans compare, text compares, lists compare item by item,
// and nothing else does. Quoted text inside a list has no order in Hydra; here it is text.
func pyLess(a, b *elem) (bool, error) {
	switch {
	case a.kind == listElem && b.kind == listElem:
		for i := 0; i < len(a.items) && i < len(b.items); i++ {
			if a.items[i].toNode().equal(b.items[i].toNode()) {
				continue
			}
			return pyLess(a.items[i], b.items[i])
		}
		return len(a.items) < len(b.items), nil
	case a.isText() && b.isText():
		return a.node.Text < b.node.Text, nil
	case a.kind == scalarElem && b.kind == scalarElem && !a.isText() && !b.isText() && !a.isNull() && !b.isNull():
		if a.node.Kind == Int && b.node.Kind == Int {
			return decimalOf(a.node).Cmp(decimalOf(b.node)) < 0, nil
		}
		x, _ := a.node.number()
		y, _ := b.node.number()
		return x < y, nil
	}
	return false, fmt.Errorf("'<' not supported between %s and %s: cannot sort values of different types", a.describe(), b.describe())
}

// sortedRange turns a range round where it runs the other way.
func sortedRange(e elem, reverse bool) *elem {
	start, step := decimalOf(e.rng[0].node), decimalOf(e.rng[2].node)
	isFloat := e.isFloatRange()
	if (step.Sign() > 0) != reverse {
		return &e
	}
	steps := e.rangeCount()
	if steps.Sub(steps, big.NewInt(1)).Sign() <= 0 { // no value or one
		return &e
	}
	last := new(big.Rat).Add(start, new(big.Rat).Mul(new(big.Rat).SetInt(steps), step))
	end := new(big.Rat).Sub(start, step)
	e.rng = [3]*elem{scalarOf(decimalNode(last, isFloat)), scalarOf(decimalNode(end, isFloat)), scalarOf(decimalNode(step.Neg(step), isFloat))}
	return &e
}

// isFloatRange reports whether the values of a range are floats: if any bound or the step is.
func (e *elem) isFloatRange() bool {
	return slices.ContainsFunc(e.rng[:], func(x *elem) bool { return x.node.Kind == Float })
}

func shuffleCall(args callArgs) (*elem, error) {
	named, err := args.rest("sweep", "list")
	if err != nil {
		return nil, err
	}
	v, err := args.sequence(named)
	if err != nil {
		return nil, err
	}
	e := *v
	switch e.kind {
	case listElem, choiceSweep:
		e.items = slices.Clone(e.items)
		rand.Shuffle(len(e.items), func(i, j int) { e.items[i], e.items[j] = e.items[j], e.items[i] })
	case rangeSweep:
		e.shuffled = true
	default: // as in Hydra, one value becomes a list
		return &elem{kind: listElem, items: []*elem{v}}, nil
	}
	return &e, nil
}

func tagCall(args callArgs) (*elem, error) {
	named, err := args.rest("sweep")
	if err != nil {
		return nil, err
	}
	tags, sweep := args.pos, named["sweep"]
	if len(tags) == 0 {
		return nil, fmt.Errorf("not enough arguments to tag, must take at least a sweep")
	}
	if sweep == nil || sweep.isNull() {
		tags, sweep = tags[:len(tags)-1], tags[len(tags)-1]
	}
	if !sweep.isSweep() || sweep.kind == globSweep {
		return nil, fmt.Errorf("last argument to tag() must be a choice(), range() or interval(), got %s", sweep.describe())
	}
	c := *sweep
	c.tags = nil
	for _, t := range tags {
		if !t.isText() {
			return nil, fmt.Errorf("tag arguments type must be string, got %s", t.describe())
		}
		c.tags = append(c.tags, t.node.Text)
	}
	return &c, nil
}
