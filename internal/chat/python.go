package chat

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// What templates do with texts is Python's, not the library's: it strips ASCII spaces alone, ignores the limit of a split, counts bytes,
// and wants arguments that Python does not.

// pythonSpace reports what str.isspace reports: Unicode's white space and the separators of ASCII.
func pythonSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// pythonMethods are methods of texts that take the library's place.
var pythonMethods = map[string]exec.Method[string]{
	"strip": stripWith(strings.TrimFunc), "lstrip": stripWith(strings.TrimLeftFunc), "rstrip": stripWith(strings.TrimRightFunc),
	"split": func(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		sep, limit, err := splitArguments(params)
		switch {
		case err != nil:
			return nil, err
		case sep == nil && limit < 0:
			return strings.FieldsFunc(self, pythonSpace), nil
		case sep == nil:
			return nil, errors.New("split: a limit wants a separator")
		case limit < 0:
			return strings.Split(self, *sep), nil
		}
		return strings.SplitN(self, *sep, limit+1), nil
	},
	"rsplit": func(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		sep, limit, err := splitArguments(params)
		if err == nil && sep == nil {
			err = errors.New("rsplit: want a separator")
		}
		if err != nil {
			return nil, err
		}
		parts := strings.Split(self, *sep)
		if first := len(parts) - limit; limit >= 0 && first > 1 {
			parts = append([]string{strings.Join(parts[:first], *sep)}, parts[first:]...)
		}
		return parts, nil
	},
	"replace": func(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		given, err := arguments(params, "old", "new", "count")
		switch {
		case err != nil:
			return nil, err
		case !isText(given[0]) || !isText(given[1]) || given[2] != nil && !given[2].IsInteger():
			return nil, errors.New("replace: want two texts, and perhaps a count")
		}
		count := -1
		if given[2] != nil {
			count = given[2].Integer()
		}
		return strings.Replace(self, given[0].String(), given[1].String(), count), nil
	},
	"count": func(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		sub, err := oneText("count", params)
		return strings.Count(self, sub), err
	},
	"find": func(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		sub, err := oneText("find", params)
		return runesBefore(self, strings.Index(self, sub)), err
	},
	"rfind": func(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		sub, err := oneText("rfind", params)
		return runesBefore(self, strings.LastIndex(self, sub)), err
	},
}

func stripWith(trim func(string, func(rune) bool) string) exec.Method[string] {
	return func(self string, _ *exec.Value, params *exec.VarArgs) (any, error) {
		given, err := arguments(params, "chars")
		if err != nil {
			return nil, err
		}
		if given[0] == nil || given[0].IsNil() {
			return trim(self, pythonSpace), nil
		}
		if !given[0].IsString() {
			return nil, errors.New("strip: want a text of the characters to take away")
		}
		chars := given[0].String()
		return trim(self, func(r rune) bool { return strings.ContainsRune(chars, r) }), nil
	}
}

// arguments returns the arguments of those names, by place or by name; nil where one is not given.
func arguments(params *exec.VarArgs, names ...string) ([]*exec.Value, error) {
	if len(params.Args) > len(names) {
		return nil, fmt.Errorf("want at most %d arguments", len(names))
	}
	given := make([]*exec.Value, len(names))
	copy(given, params.Args)
	named := 0
	for i, name := range names {
		if v, ok := params.KwArgs[name]; ok && given[i] == nil {
			given[i] = v
			named++
		}
	}
	if named < len(params.KwArgs) {
		return nil, fmt.Errorf("want no arguments but %s", strings.Join(names, ", "))
	}
	return given, nil
}

func isText(v *exec.Value) bool { return v != nil && v.IsString() }

func oneText(method string, params *exec.VarArgs) (string, error) {
	if len(params.Args) != 1 || len(params.KwArgs) > 0 || !params.Args[0].IsString() {
		return "", fmt.Errorf("%s: want one text", method)
	}
	return params.Args[0].String(), nil
}

func splitArguments(params *exec.VarArgs) (sep *string, limit int, err error) {
	given, err := arguments(params, "sep", "maxsplit")
	if err != nil {
		return nil, 0, err
	}
	limit = -1
	if given[1] != nil {
		if !given[1].IsInteger() {
			return nil, 0, errors.New("split: want an integer as its limit")
		}
		limit = given[1].Integer()
	}
	if given[0] == nil || given[0].IsNil() {
		return nil, limit, nil
	}
	text := given[0].String()
	if !given[0].IsString() || text == "" {
		return nil, 0, errors.New("split: want a text that is not empty")
	}
	return &text, limit, nil
}

// runesBefore returns the characters before a byte, -1 for -1.
func runesBefore(text string, at int) int {
	if at < 0 {
		return -1
	}
	return utf8.RuneCountInString(text[:at])
}

// none is Python's None, as a nil of its own type: to the library it is nothing, as what is not defined.
type none struct{}

func isNone(v *exec.Value) bool { return v.Val.IsValid() && v.Val.Type() == reflect.TypeFor[*none]() }

func undefined(v *exec.Value) bool { return v.IsError() || v.IsNil() && !isNone(v) }

// dictMethods are methods of dicts that take the library's place.
var dictMethods = map[string]exec.Method[map[string]any]{
	"get": func(self map[string]any, value *exec.Value, params *exec.VarArgs) (any, error) {
		get, _ := builtins.Methods.Dict.Get("get")
		out, err := get(self, value, params)
		if out == nil && len(params.Args) == 1 {
			out = (*none)(nil)
		}
		return out, err
	},
}

// equal compares two values; none is not what is not defined.
func equal(e *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	budgetOf(e.Environment.Context).step(1)
	left, right := params.Args[0], params.Args[1]
	sizeOf(left)
	sizeOf(right)
	return exec.AsValue(left.EqualValueTo(right) && isNone(left) == isNone(right))
}

// pythonTests are the library's but for true and false, which nothing else is: not 0, not what is not defined; and but for none.
func pythonTests() *exec.TestSet {
	test := func(is func(v *exec.Value) bool) exec.TestFunction {
		return func(_ *exec.Context, v *exec.Value, _ *exec.VarArgs) (bool, error) { return is(v), nil }
	}
	own := exec.NewTestSet(map[string]exec.TestFunction{
		"true":      test(func(v *exec.Value) bool { return v.IsBool() && v.Bool() }),
		"false":     test(func(v *exec.Value) bool { return v.IsBool() && !v.Bool() }),
		"none":      test(isNone),
		"defined":   test(func(v *exec.Value) bool { return !undefined(v) }),
		"undefined": test(undefined),
	})
	return exec.NewTestSet(map[string]exec.TestFunction{}).Update(builtins.Tests).Update(own)
}

// defaults is the library's default, but that none is defined.
func defaults(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if isNone(in) && len(params.Args)+len(params.KwArgs) < 2 {
		return in
	}
	otherwise, _ := builtins.Filters.Get("default")
	return otherwise(e, in, params)
}

// ofSome is a filter of the library but for a list or text that is empty: of that there is none, where the library makes an empty text.
func ofSome(name string) exec.FilterFunction {
	return func(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
		if !in.IsError() && in.CanSlice() && in.Len() == 0 {
			return exec.AsValue(nil)
		}
		filter, _ := builtins.Filters.Get(name)
		return filter(e, in, params)
	}
}

// pythonFilters are filters that take the library's place.
var pythonFilters = map[string]exec.FilterFunction{
	"trim": func(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
		if in.IsString() && len(params.Args)+len(params.KwArgs) == 0 {
			return exec.AsValue(strings.TrimFunc(in.String(), pythonSpace))
		}
		trim, _ := builtins.Filters.Get("trim")
		return trim(e, in, params)
	},
	"default": defaults, "d": defaults,
	"first": ofSome("first"), "last": ofSome("last"),
	"round": func(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
		given, err := arguments(params, "precision", "method")
		precision := 0
		if err == nil && given[0] != nil {
			precision = given[0].Integer()
		}
		switch {
		case err != nil || given[1] != nil || precision < 0 || !in.IsNumber():
			round, _ := builtins.Filters.Get("round")
			return round(e, in, params)
		case in.IsInteger() || precision > 323: // which is every digit
			return in
		}
		x, err := strconv.ParseFloat(strconv.FormatFloat(in.Float(), 'f', precision, 64), 64) // half to even, as Python does
		if err != nil {
			return exec.AsValue(err)
		}
		return exec.AsValue(x)
	},
	"tojson": func(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
		given, err := arguments(params, "ensure_ascii", "indent")
		var out strings.Builder
		switch {
		case in.IsError():
			return in
		case err != nil:
		case given[0] != nil && given[0].IsTrue() || given[1] != nil && !given[1].IsInteger() && !given[1].IsNil():
			err = errors.New("tojson: want indent, a number, and no ensure_ascii")
		case given[1] == nil || given[1].IsNil():
			err = writeJSON(&out, in, ", ", "", 0)
		default:
			err = writeJSON(&out, in, ",", "\n", given[1].Integer())
		}
		if err != nil {
			return exec.AsValue(err)
		}
		return exec.AsSafeValue(out.String())
	},
}

// writeJSON writes what json.dumps(v, ensure_ascii=False) writes: line, and step spaces for every level, before each value where there is
// an indent. The order of a message's keys is not known here.
func writeJSON(out *strings.Builder, v *exec.Value, separator, line string, step int) error {
	inner := line
	if line != "" {
		inner += strings.Repeat(" ", step)
	}
	list := func(open, shut string, n int, item func(i int) error) error {
		out.WriteString(open)
		for i := range n {
			if i > 0 {
				out.WriteString(separator)
			}
			out.WriteString(inner)
			if err := item(i); err != nil {
				return err
			}
		}
		if n > 0 {
			out.WriteString(line)
		}
		out.WriteString(shut)
		return nil
	}
	switch {
	case v.IsNil():
		out.WriteString("null")
	case v.IsBool():
		out.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsNumber():
		out.WriteString(v.String())
	case v.IsString():
		quoteJSON(out, v.String())
	case v.IsList():
		return list("[", "]", v.Len(), func(i int) error { return writeJSON(out, v.Index(i), separator, inner, step) })
	case v.IsDict():
		var pairs []*exec.Pair
		if dict, ordered := v.Interface().(*exec.Dict); ordered {
			pairs = dict.Pairs
		} else if pairs = v.Items(); len(pairs) > 1 {
			return errors.New("tojson of a message, whose keys have no order here")
		}
		return list("{", "}", len(pairs), func(i int) error {
			quoteJSON(out, pairs[i].Key.String())
			out.WriteString(": ")
			return writeJSON(out, pairs[i].Value, separator, inner, step)
		})
	default:
		return errors.New("tojson of a value that JSON does not have")
	}
	return nil
}

// quoteJSON writes a text as Python's json does: all but quotes, backslashes and control characters as they are.
func quoteJSON(out *strings.Builder, text string) {
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteString(`\` + string(r))
		case r >= 0x20:
			out.WriteRune(r)
		default:
			if short := strings.IndexRune("\b\f\n\r\t", r); short >= 0 {
				out.WriteString(`\` + "bfnrt"[short:short+1])
			} else {
				fmt.Fprintf(out, `\u%04x`, r)
			}
		}
	}
	out.WriteByte('"')
}

// addend ends the rendering at a sum with nothing, which Python has not either: a value that is not defined, or none.
func addend(e *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	b := budgetOf(e.Environment.Context)
	b.step(1)
	v := params.Args[0]
	sizeOf(v)
	if v.IsNil() {
		b.line = params.Args[1].Integer()
		panic(refused(fmt.Sprintf("line %d: + of nothing: a variable or attribute that is not defined here, or none", b.line)))
	}
	return v
}

// item returns a list of v[key] alone: the library knows no x[-1] where x has one member, and takes bytes for the characters of a text.
func item(e *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	budgetOf(e.Environment.Context).step(1)
	v, key := params.Args[0], params.Args[1]
	var held *exec.Value
	switch {
	case v.IsError():
		return v
	case key.IsInteger() && (v.IsList() || v.IsString()):
		at := key.Integer()
		if at < 0 {
			at += v.Len()
		}
		if at < 0 || at >= v.Len() {
			return exec.AsValue([]any{nil})
		}
		held = v.Index(at)
	case key.IsInteger():
		held, _ = v.GetItem(key.Integer())
	case key.IsString():
		var found bool
		if held, found = v.GetItem(key.String()); !found {
			held, _ = v.GetAttribute(key.String())
		}
	default:
		return exec.AsValue(errors.New("a key that is no text and no integer"))
	}
	if held.IsError() {
		return held
	}
	return exec.AsValue([]any{held.Interface()})
}
