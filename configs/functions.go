package configs

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sort"
	"strings"
)

// The functions of the override grammar: casts, sweeps and what works on them.

var functionNames = [...]string{"bool", "choice", "extend_list", "float", "glob", "int", "interval", "json_str", "range", "shuffle", "sort", "str", "tag"}

// callArgs are the arguments of a call; quoted text has lost its quotes.
type callArgs struct {
	pos   []*elem
	named map[string]*elem
}

// call parses the arguments behind "name(" and evaluates the call.
func (p *valueParser) call(name string, start int) (*elem, error) {
	known := false
	for _, f := range functionNames {
		known = known || f == name
	}
	if !known {
		return nil, p.errorf(start, "unknown function '%s'%s: want one of %s", name, didYouMean(name, functionNames[:]), strings.Join(functionNames[:], ", "))
	}
	args := callArgs{named: map[string]*elem{}}
	if t, n := p.peek(); t == tokParenClose {
		p.pos += n
	} else if err := p.arguments(&args); err != nil {
		return nil, err
	}
	e, err := evalCall(name, args)
	if err != nil {
		return nil, p.errorf(start, "%s(): %v", name, err)
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
		if e.kind == scalarElem && e.quote != 0 {
			c := *e
			c.quote = 0
			e = &c
		}
		switch {
		case key == "" && len(args.named) > 0:
			return p.errorf(save, "a positional argument after a named one")
		case key == "":
			args.pos = append(args.pos, e)
		case args.named[key] != nil:
			return p.errorf(save, "argument %s is given twice", key)
		default:
			args.named[key] = e
		}
		t, n := p.peek()
		switch t {
		case tokComma:
			p.pos += n
		case tokParenClose:
			p.pos += n
			return nil
		default:
			return p.unexpected(t, n, `"," or ")"`)
		}
	}
}

// bind matches arguments with parameter names; parameters without an argument are nil.
func (a callArgs) bind(params ...string) ([]*elem, error) {
	out := make([]*elem, len(params))
	if len(a.pos) > len(params) {
		return nil, fmt.Errorf("%d arguments: want at most %d", len(a.pos), len(params))
	}
	copy(out, a.pos)
	for name, e := range a.named {
		found := false
		for i, p := range params {
			if p != name {
				continue
			}
			if out[i] != nil {
				return nil, fmt.Errorf("argument %s is given twice", name)
			}
			out[i], found = e, true
		}
		if !found {
			return nil, fmt.Errorf("unknown argument %s%s: want %s", name, didYouMean(name, params), strings.Join(params, ", "))
		}
	}
	return out, nil
}

// rest splits off the named arguments that a variadic function takes.
func (a callArgs) rest(names ...string) (map[string]*elem, error) {
	for name := range a.named {
		ok := false
		for _, n := range names {
			ok = ok || n == name
		}
		if !ok {
			return nil, fmt.Errorf("unknown argument %s", name)
		}
	}
	return a.named, nil
}

func evalCall(name string, args callArgs) (*elem, error) {
	switch name {
	case "int", "float", "str", "bool", "json_str":
		v, err := castArgument(args)
		if err != nil {
			return nil, err
		}
		if name == "json_str" {
			if v.isSweep() && v.kind != choiceSweep || v.kind == extendElem {
				return nil, fmt.Errorf("want values")
			}
			return jsonStr(v), nil
		}
		return cast(name, v)
	case "choice":
		if _, err := args.rest(); err != nil {
			return nil, err
		}
		return choice(args.pos)
	case "range":
		return rangeCall(args)
	case "interval":
		b, err := args.bind("start", "end")
		if err != nil {
			return nil, err
		}
		for _, e := range b {
			if !e.isNumber() {
				return nil, fmt.Errorf("want two numbers, interval(start,end)")
			}
		}
		return &elem{kind: intervalSweep, rng: [3]*elem{b[0], b[1]}}, nil
	case "glob":
		return globCall(args)
	case "sort":
		return sortCall(args)
	case "shuffle":
		return shuffleCall(args)
	case "tag":
		return tagCall(args)
	}
	if _, err := args.rest(); err != nil { // extend_list
		return nil, err
	}
	for _, e := range args.pos {
		if e.isSweep() {
			return nil, fmt.Errorf("a sweep as an argument: want values")
		}
	}
	return &elem{kind: extendElem, items: args.pos}, nil
}

func (e *elem) isNumber() bool {
	return e != nil && e.kind == scalarElem && (e.node.Kind == Int || e.node.Kind == Float)
}

// castArgument is what a cast works on: one value, or several as a simple choice.
func castArgument(args callArgs) (*elem, error) {
	named, err := args.rest("value")
	if err != nil {
		return nil, err
	}
	v := named["value"]
	switch {
	case v != nil && len(args.pos) > 0:
		return nil, fmt.Errorf("both a positional argument and value=")
	case v != nil:
		return v, nil
	case len(args.pos) == 0:
		return nil, fmt.Errorf("no argument: want a value")
	case len(args.pos) == 1:
		return args.pos[0], nil
	}
	return &elem{kind: choiceSweep, items: args.pos, plain: true}, nil
}

// cast applies int, float, str or bool to a value, or to the values inside a container or sweep.
func cast(name string, e *elem) (*elem, error) {
	c := *e
	switch e.kind {
	case listElem, dictElem, choiceSweep:
		c.items = make([]*elem, len(e.items))
		for i, x := range e.items {
			v, err := cast(name, x)
			if err != nil {
				return nil, err
			}
			c.items[i] = v
		}
		return &c, nil
	case rangeSweep, intervalSweep:
		if name != "int" && name != "float" {
			return nil, fmt.Errorf("a range or interval can only be cast to int or float")
		}
		for i, x := range e.rng {
			if x == nil {
				continue
			}
			v, err := cast(name, x)
			if err != nil {
				return nil, err
			}
			c.rng[i] = v
		}
		c.cast = name
		return &c, nil
	case scalarElem:
		n, err := castScalar(name, e.node)
		if err != nil {
			return nil, err
		}
		return scalarOf(n), nil
	}
	return nil, fmt.Errorf("cannot be cast to %s", name)
}

func castScalar(name string, n *Node) (*Node, error) {
	bad := fmt.Errorf("cannot cast %s to %s", n.pyRepr(), name)
	if n.Kind == Null && name != "bool" {
		return nil, bad
	}
	switch name {
	case "str":
		if n.Kind == Bool {
			return plainString(strings.ToLower(n.pyStr())), nil
		}
		s, err := newString(n.pyStr())
		return s, err
	case "bool":
		switch n.Kind {
		case Null:
			return newBool(false), nil
		case String:
			if strings.EqualFold(n.Text, "true") || strings.EqualFold(n.Text, "false") {
				return newBool(strings.EqualFold(n.Text, "true")), nil
			}
			return nil, bad
		}
		f, _ := n.number()
		return newBool(f != 0), nil
	case "int":
		switch n.Kind {
		case Int:
			return n, nil
		case Float:
			if math.IsInf(n.Num, 0) || math.IsNaN(n.Num) {
				return nil, bad
			}
			i, _ := big.NewFloat(n.Num).Int(nil)
			return &Node{Kind: Int, Text: i.String()}, nil
		case String:
			sign, body := splitSign(strings.TrimSpace(n.Text))
			if body == "" || digitsLen(body) != len(body) {
				return nil, bad
			}
			return intNode(sign, strings.ReplaceAll(body, "_", ""), 10), nil
		}
	case "float":
		if n.Kind == String {
			s := strings.TrimSpace(n.Text)
			if !pyIsNumber(s) {
				return nil, bad
			}
			return parseFloatText(s), nil
		}
	}
	f, _ := n.number()
	if name == "int" {
		return newInt(int64(f)), nil
	}
	return newFloat(f), nil
}

func choice(args []*elem) (*elem, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("empty choice: want at least one value")
	}
	if len(args) == 1 && args[0].kind == choiceSweep && args[0].plain {
		c := *args[0]
		c.plain = false
		return &c, nil
	}
	for _, a := range args {
		if a.isSweep() || a.kind == extendElem {
			return nil, fmt.Errorf("nesting choices is not supported")
		}
	}
	return &elem{kind: choiceSweep, items: args}, nil
}

func rangeCall(args callArgs) (*elem, error) {
	b, err := args.bind("start", "stop", "step")
	if err != nil {
		return nil, err
	}
	if b[1] == nil { // range(stop)
		b[0], b[1] = scalarOf(newInt(0)), b[0]
	}
	if b[0] == nil {
		b[0] = scalarOf(newInt(0))
	}
	if b[2] == nil {
		b[2] = scalarOf(newInt(1))
	}
	for _, e := range b {
		if !e.isNumber() || e.node.Kind == Float && (math.IsInf(e.node.Num, 0) || math.IsNaN(e.node.Num)) {
			return nil, fmt.Errorf("want finite numbers, range(start,stop,step)")
		}
	}
	if f, _ := b[2].node.number(); f == 0 {
		return nil, fmt.Errorf("step 0: want another step")
	}
	return &elem{kind: rangeSweep, rng: [3]*elem{b[0], b[1], b[2]}}, nil
}

func globCall(args callArgs) (*elem, error) {
	b, err := args.bind("include", "exclude")
	if err != nil {
		return nil, err
	}
	e := &elem{kind: globSweep}
	for i, x := range b {
		switch {
		case x == nil && i == 0:
			return nil, fmt.Errorf("no argument: want a pattern or a list of patterns")
		case x == nil:
		case x.kind == scalarElem && x.node.Kind == String:
			e.glob[i] = []string{x.node.Text}
		case x.kind == listElem:
			for _, y := range x.items {
				if y.kind != scalarElem || y.node.Kind != String {
					return nil, fmt.Errorf("want a pattern or a list of patterns")
				}
				e.glob[i] = append(e.glob[i], y.node.Text)
			}
		default:
			return nil, fmt.Errorf("want a pattern or a list of patterns")
		}
	}
	return e, nil
}

func sortCall(args callArgs) (*elem, error) {
	named, err := args.rest("reverse")
	if err != nil {
		return nil, err
	}
	reverse := false
	if r := named["reverse"]; r != nil {
		if r.kind != scalarElem || r.node.Kind != Bool {
			return nil, fmt.Errorf("reverse: want true or false")
		}
		reverse = r.node.Bool
	}
	var e elem
	switch {
	case len(args.pos) == 0:
		return nil, fmt.Errorf("no argument: want values, a list or a sweep")
	case len(args.pos) > 1:
		e = elem{kind: choiceSweep, items: args.pos, plain: true}
	default:
		e = *args.pos[0]
	}
	switch e.kind {
	case listElem, choiceSweep:
		e.items, err = sorted(e.items, reverse)
		return &e, err
	case rangeSweep:
		return sortedRange(e, reverse), nil
	}
	return nil, fmt.Errorf("want values, a list or a sweep")
}

func sorted(items []*elem, reverse bool) ([]*elem, error) {
	out := append([]*elem(nil), items...)
	for _, e := range out {
		if e.kind != scalarElem || e.node.Kind == Null || (e.node.Kind == String) != (out[0].node.Kind == String) {
			return nil, fmt.Errorf("cannot sort values of different types")
		}
	}
	less := func(a, b *Node) bool {
		if a.Kind == String {
			return a.Text < b.Text
		}
		x, _ := a.number()
		y, _ := b.number()
		return x < y
	}
	sort.SliceStable(out, func(i, j int) bool {
		if reverse {
			return less(out[j].node, out[i].node)
		}
		return less(out[i].node, out[j].node)
	})
	return out, nil
}

// sortedRange turns a range round where it runs the other way.
func sortedRange(e elem, reverse bool) *elem {
	start, stop, step := decimalOf(e.rng[0].node), decimalOf(e.rng[1].node), decimalOf(e.rng[2].node)
	isFloat := e.rng[0].node.Kind == Float || e.rng[1].node.Kind == Float || e.rng[2].node.Kind == Float
	backwards := start.Cmp(stop) > 0
	if backwards == reverse || start.Cmp(stop) == 0 {
		return &e
	}
	newStart := new(big.Rat).Sub(stop, step)
	newStop := new(big.Rat).Sub(start, step)
	e.rng = [3]*elem{scalarOf(decimalNode(newStart, isFloat)), scalarOf(decimalNode(newStop, isFloat)), scalarOf(decimalNode(step.Neg(step), isFloat))}
	return &e
}

func shuffleCall(args callArgs) (*elem, error) {
	if _, err := args.rest(); err != nil {
		return nil, err
	}
	var e elem
	switch {
	case len(args.pos) == 0:
		return nil, fmt.Errorf("no argument: want values, a list or a sweep")
	case len(args.pos) > 1:
		e = elem{kind: choiceSweep, items: args.pos, plain: true}
	default:
		e = *args.pos[0]
	}
	switch e.kind {
	case listElem, choiceSweep:
		e.items = append([]*elem(nil), e.items...)
		rand.Shuffle(len(e.items), func(i, j int) { e.items[i], e.items[j] = e.items[j], e.items[i] })
	case rangeSweep, globSweep:
		e.shuffled = true
	default:
		return nil, fmt.Errorf("want values, a list or a sweep")
	}
	return &e, nil
}

func tagCall(args callArgs) (*elem, error) {
	named, err := args.rest("sweep")
	if err != nil {
		return nil, err
	}
	tags, sweep := args.pos, named["sweep"]
	if sweep == nil {
		if len(tags) == 0 {
			return nil, fmt.Errorf("no argument: want tags and a sweep")
		}
		tags, sweep = tags[:len(tags)-1], tags[len(tags)-1]
	}
	if !sweep.isSweep() {
		return nil, fmt.Errorf("the last argument must be a choice(), range() or interval()")
	}
	c := *sweep
	c.tags = append([]string(nil), c.tags...)
	for _, t := range tags {
		if t.kind != scalarElem || t.node.Kind != String {
			return nil, fmt.Errorf("a tag must be a word")
		}
		c.tags = append(c.tags, t.node.Text)
	}
	return &c, nil
}
