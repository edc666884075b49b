package configs

import (
	"fmt"
	"math"
	"math/big"
	"strings"
)

// The casts of the override grammar: int, float, str, bool and json_str.

// castTo returns the function of the grammar that casts to a type.
func castTo(name string) func(callArgs) (*elem, error) {
	return func(args callArgs) (*elem, error) {
		v, err := castArgument(args)
		if err != nil {
			return nil, err
		}
		return cast(name, v)
	}
}

// castArgument is what a cast works on: one value, or several as a simple choice.
func castArgument(args callArgs) (*elem, error) {
	named, err := args.rest("value")
	if err != nil {
		return nil, err
	}
	v := named["value"]
	if v != nil && v.isNull() {
		v = nil
	}
	all := args.pos
	switch {
	case v != nil && len(all) > 0:
		return nil, fmt.Errorf("cannot use both position and named arguments")
	case v != nil:
		all = []*elem{v}
	case len(all) == 0:
		return nil, fmt.Errorf("no positional args or value specified")
	}
	for i, e := range all {
		if e.kind == globSweep || e.kind == extendElem || len(all) > 1 && e.isSweep() {
			return nil, mismatch(fmt.Sprintf("args[%d]", i), e, "a value, a choice, a range or an interval")
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return &elem{kind: choiceSweep, items: all, plain: true}, nil
}

// cast applies int, float, str, bool or json_str to a value, or to the values inside a container or sweep.
func cast(name string, e *elem) (*elem, error) {
	if e.kind == scalarElem || name == "json_str" && (e.kind == listElem || e.kind == dictElem) {
		n, err := castScalar(name, e.toNode())
		return scalarOf(n), err
	}
	c := *e
	switch e.kind {
	case rangeSweep, intervalSweep:
		switch {
		case name == "int" || name == "float":
		case e.kind == rangeSweep:
			return nil, fmt.Errorf("range can only be cast to int or float")
		default:
			return nil, fmt.Errorf("intervals cannot be cast to %s", name)
		}
		c.cast = name
		var err error
		for i, x := range e.rng {
			if x != nil && err == nil {
				c.rng[i], err = cast(name, x)
			}
		}
		return &c, err
	case listElem, dictElem, choiceSweep:
		c.items = make([]*elem, len(e.items))
		var err error
		for i, x := range e.items {
			if c.items[i], err = cast(name, x); err != nil {
				return nil, err
			}
		}
		return &c, nil
	}
	return nil, fmt.Errorf("%s cannot be cast to %s", e.describe(), name)
}

func castScalar(name string, n *Node) (*Node, error) {
	if n.Kind == Null && name != "bool" && name != "json_str" {
		return nil, fmt.Errorf("null cannot be cast to %s", name)
	}
	switch name {
	case "json_str":
		return newString(jsonText(n))
	case "str":
		if n.Kind == Bool {
			return plainString(strings.ToLower(n.pyStr())), nil
		}
		return newString(n.pyStr())
	case "bool":
		switch n.Kind {
		case Null:
			return newBool(false), nil
		case String:
			if isTrue := strings.EqualFold(n.Text, "true"); isTrue || strings.EqualFold(n.Text, "false") {
				return newBool(isTrue), nil
			}
			return nil, fmt.Errorf("cannot cast '%s' to bool", n.Text)
		}
		f, _ := n.number()
		return newBool(f != 0), nil
	case "int":
		switch n.Kind {
		case Int:
			return n, nil
		case Float:
			if math.IsInf(n.Num, 0) {
				return nil, fmt.Errorf("cannot convert float infinity to integer")
			}
			if math.IsNaN(n.Num) {
				return nil, fmt.Errorf("cannot convert float NaN to integer")
			}
			i, _ := big.NewFloat(n.Num).Int(nil)
			return &Node{Kind: Int, Text: i.String()}, nil
		case String:
			sign, body := splitSign(strings.TrimSpace(n.Text))
			if body == "" || digitsLen(body) != len(body) {
				return nil, fmt.Errorf("invalid literal for int() with base 10: %s", n.pyRepr())
			}
			return intNode(sign, strings.ReplaceAll(body, "_", ""), 10), nil
		}
	case "float":
		if n.Kind == String {
			s := strings.TrimSpace(n.Text)
			if !pyIsNumber(s) {
				return nil, fmt.Errorf("could not convert string to float: %s", n.pyRepr())
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
