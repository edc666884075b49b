package chat

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// A template comes with a model, from anywhere. What it may use: the largest published one has some 25 kB, and a
// conversation is read in some thousand steps.
const (
	maxSource  = 128 << 10        // bytes of a template
	maxNesting = 100              // brackets and blocks in each other
	maxDepth   = 200              // statements and macros under way in each other
	maxSteps   = 300_000          // statements, iterations, filters and outputs
	maxText    = 16 << 20         // bytes of a value, of the output, and of all that is written on the way to it
	maxWork    = 1 << 28          // bytes that one filter or method may make of what it is given
	maxTime    = 60 * time.Second // of one rendering; a conversation takes a millisecond
)

// budget is what one rendering has used.
type budget struct {
	steps, written, depth int
	end                   time.Time
	line                  int // of the template, that is rendered
}

// budgetName is the name of the budget in a template's variables: no template can write it.
const budgetName = "\x00budget"

func budgetOf(c *exec.Context) *budget {
	b, _ := c.Get(budgetName)
	return b.(*budget)
}

// refused is a panic of ours, with words for the reader. Panics end a rendering, as the library goes on after some errors; recovered
// makes them errors again.
type refused string

// exceed ends the rendering.
func exceed(format string, args ...any) {
	panic(refused("the template asks for too much: " + fmt.Sprintf(format, args...)))
}

func (b *budget) step(n int) {
	if b.steps += n; b.steps > maxSteps {
		exceed("more than %d steps", maxSteps)
	}
	if time.Now().After(b.end) {
		exceed("more than %v", maxTime)
	}
}

// enter begins a statement or a macro; leave ends it.
func (b *budget) enter() {
	if b.depth++; b.depth > maxDepth {
		exceed("more than %d statements and macros in each other", maxDepth)
	}
	b.step(1)
}

func (b *budget) leave() { b.depth-- }

// limitedWriter counts what a template writes.
type limitedWriter struct {
	io.Writer
	b *budget
}

func (w *limitedWriter) Write(text []byte) (int, error) {
	w.b.step(1)
	if w.b.written += len(text); w.b.written > maxText {
		exceed("more than %d MB of output", maxText>>20)
	}
	return w.Writer.Write(text)
}

// sizeOf returns the bytes that a value takes when it is printed, roughly. Values in each other, of which a list that
// holds itself has no end, and shared ones, which print as often as they are named, are bounded.
func sizeOf(v *exec.Value) int {
	size := 0
	var walk func(v reflect.Value, depth int)
	walk = func(v reflect.Value, depth int) {
		if v.Kind() == reflect.String {
			size += v.Len()
		}
		if size += 16; size > maxText { // also of nothing
			exceed("a value of more than %d MB", maxText>>20)
		}
		if depth > maxNesting {
			exceed("a value with more than %d levels", maxNesting)
		}
		switch v.Kind() {
		case reflect.Slice, reflect.Array:
			for i := range v.Len() {
				walk(v.Index(i), depth+1)
			}
		case reflect.Map:
			for it := v.MapRange(); it.Next(); {
				walk(it.Key(), depth+1)
				walk(it.Value(), depth+1)
			}
		case reflect.Interface:
			walk(v.Elem(), depth)
		case reflect.Pointer:
			if v.IsNil() || !v.CanInterface() {
				return
			}
			switch p := v.Interface().(type) {
			case *exec.Value:
				walk(p.Val, depth)
			case *exec.Pair:
				walk(reflect.ValueOf(p.Key), depth+1)
				walk(reflect.ValueOf(p.Value), depth+1)
			case *exec.Dict:
				walk(reflect.ValueOf(p.Pairs), depth)
			}
		}
	}
	if v != nil {
		walk(v.Val, 0)
	}
	return size
}

var digits = regexp.MustCompile(`[0-9]+`)

// allow ends the rendering at a filter or method whose result may be very large: it is at most the two largest texts by
// one another (join, replace), times a number (center, indent).
func allow(name string, in *exec.Value, params *exec.VarArgs) {
	number, largest, second := 1.0, 1.0, 1.0
	values := append([]*exec.Value{in}, params.Args...)
	for _, v := range params.KwArgs {
		values = append(values, v)
	}
	for i, v := range values {
		if v == nil || v.IsError() {
			continue
		}
		if v.IsNumber() && i > 0 {
			number = max(number, math.Abs(v.Float()))
			continue
		}
		if i == 0 && strings.HasPrefix(name, "format") { // widths
			for _, width := range digits.FindAllString(v.String(), -1) {
				n, _ := strconv.ParseFloat(width, 64)
				number = max(number, n)
			}
		}
		if size := float64(sizeOf(v)); size > largest {
			largest, second = size, largest
		} else {
			second = max(second, size)
		}
	}
	if number*largest*second > maxWork && !slices.Contains([]string{"default", "d", "int", "float", "round", "abs", "string"}, name) {
		exceed("%s of %.0f by %.0f bytes with the number %g", name, largest, second, number)
	}
}

// limitedFilters returns the library's filters with their limits.
func limitedFilters() *exec.FilterSet {
	filters := map[string]exec.FilterFunction{}
	for _, name := range strings.Fields(`abs attr batch capitalize center default d dictsort e escape filesizeformat first float forceescape format groupby
		indent int join items last length count list lower map max min pprint rejectattr reject replace reverse round safe selectattr select slice sort
		string striptags sum title tojson trim truncate unique upper urlencode urlize wordcount wordwrap xmlattr`) {
		filter, ok := pythonFilters[name]
		if !ok {
			filter, _ = builtins.Filters.Get(name)
		}
		filters[name] = func(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
			budgetOf(e.Environment.Context).step(1)
			allow(name, in, params)
			out := filter(e, in, params)
			sizeOf(out)
			return out
		}
	}
	return exec.NewFilterSet(filters)
}

// limitedMethods returns the library's methods with their limits.
func limitedMethods() exec.Methods {
	all := builtins.Methods
	return exec.Methods{
		Bool:  methodsOf(all.Bool, nil, "string int bit_length bit_count as_integer_ratio"),
		Int:   methodsOf(all.Int, nil, "is_integer bit_length bit_count as_integer_ratio"),
		Float: methodsOf(all.Float, nil, "is_integer as_integer_ratio hex"),
		Dict:  methodsOf(all.Dict, dictMethods, "keys values items get pop setdefault update copy clear"),
		List:  methodsOf(all.List, nil, "append reverse copy"),
		Str: methodsOf(all.Str, pythonMethods, `
			capitalize capwords casefold center count encode endswith expandtabs find format format_map isalnum isalpha isascii isdecimal isdigit
			islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rjust rpartition rsplit
			rstrip split splitlines startswith strip swapcase title upper zfill`),
	}
}

// methodsOf returns the methods of those names: own ones, or else the library's.
func methodsOf[I any](set *exec.MethodSet[I], own map[string]exec.Method[I], names string) *exec.MethodSet[I] {
	methods := map[string]exec.Method[I]{}
	for _, name := range strings.Fields(names) {
		method, ok := own[name]
		if !ok {
			method, _ = set.Get(name)
		}
		methods[name] = func(self I, value *exec.Value, params *exec.VarArgs) (any, error) {
			allow(name, value, params)
			out, err := method(self, value, params)
			sizeOf(exec.AsValue(out))
			sizeOf(value) // append, update
			return out, err
		}
	}
	return exec.NewMethodSet(methods)
}

// limitedGlobals returns the library's functions: range as a list of bounded length, and none that makes up text.
func limitedGlobals() map[string]any {
	globals := map[string]any{}
	for _, name := range []string{"cycler", "dict", "joiner", "namespace"} {
		globals[name], _ = builtins.GlobalFunctions.Get(name)
	}
	made := globals["dict"].(func(*exec.Evaluator, *exec.VarArgs) *exec.Value)
	globals["dict"] = func(e *exec.Evaluator, params *exec.VarArgs) *exec.Value {
		if len(params.Args)+len(params.KwArgs) == 0 { // which is false
			return exec.AsValue(map[string]any{})
		}
		return made(e, params)
	}
	globals["range"] = func(_ *exec.Evaluator, params *exec.VarArgs) ([]int, error) {
		bounds := []int{0, 0, 1}
		for i, v := range params.Args {
			if i > 2 || !v.IsInteger() {
				return nil, errors.New("range: want [start, ]stop[, step], integers")
			}
			bounds[i] = v.Integer()
		}
		if len(params.Args) == 1 {
			bounds[0], bounds[1] = 0, bounds[0]
		}
		start, stop, step := bounds[0], bounds[1], bounds[2]
		if len(params.Args) == 0 || len(params.KwArgs) > 0 || step == 0 {
			return nil, errors.New("range: want [start, ]stop[, step], integers, and a step other than 0")
		}
		if n := (float64(stop) - float64(start)) / float64(step); n > maxSteps/3 {
			exceed("a range of %.0f numbers", n)
		}
		out := []int{}
		for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
			out = append(out, i)
		}
		return out, nil
	}
	globals[checkName] = func(e *exec.Evaluator, params *exec.VarArgs) *exec.Value {
		checked := params.Args[len(params.Args)-1]
		sizeOf(checked)
		budgetOf(e.Environment.Context).step(1)
		if len(params.Args) == 2 && isNone(checked) { // becomes text
			return exec.AsValue("None")
		}
		return checked
	}
	globals[lineName] = func(e *exec.Evaluator, params *exec.VarArgs) *exec.Value {
		budgetOf(e.Environment.Context).line = params.Args[0].Integer()
		return params.Args[0]
	}
	globals[eachName] = func(e *exec.Evaluator, params *exec.VarArgs) *exec.Value {
		budgetOf(e.Environment.Context).step(min(sizeOf(params.Args[0]), params.Args[0].Len()))
		return params.Args[0]
	}
	globals[timesName], globals[addendName], globals[itemName], globals[equalName] = times, addend, item, equal
	globals["none"] = (*none)(nil)
	for _, operator := range []string{"/", "//", "%"} {
		globals[operatorName(operator)] = divides(operator)
	}
	return globals
}

// The functions that watch puts around expressions.
const (
	checkName = "\x00check"
	eachName  = "\x00each"
	timesName = "\x00times"
	lineName  = "\x00line"

	addendName = "\x00addend"
	itemName   = "\x00item"
	equalName  = "\x00equal"
)

func operatorName(operator string) string { return "\x00" + operator }

// limitedStatements returns the library's statements with their limits. It leaves out those that read other templates, as
// in Hugging Face's own sandbox, and neither are blocks and {% call %}, which no published template has.
func limitedStatements() *exec.ControlStructureSet {
	statements := map[string]parser.ControlStructureParser{}
	for _, name := range []string{"for", "if", "set", "macro", "raw", "with", "filter", "do", "break", "continue", "generation"} {
		parse, ok := builtins.ControlStructures.Get(name)
		if !ok {
			parse = parseGeneration
		}
		statements[name] = func(p, args *parser.Parser) (nodes.ControlStructure, error) {
			parsed, err := parse(p, args)
			if err != nil {
				return nil, err
			}
			inner, ok := parsed.(exec.ControlStructure)
			if !ok { // raw
				return parsed, nil
			}
			if loop, ok := inner.(*controls.ForControlStructure); ok {
				if loop.Recursive {
					return nil, errors.New("a recursive loop: use a macro")
				}
				loop.ObjectEvaluator = call(eachName, p.Current(), loop.ObjectEvaluator)
			}
			return &statement{inner}, nil
		}
	}
	return exec.NewControlStructureSet(statements)
}

// statement is one of the library's, within the budget.
type statement struct{ exec.ControlStructure }

// Execute runs the statement.
func (s *statement) Execute(r *exec.Renderer, block *nodes.ControlStructureBlock) error {
	b := budgetOf(r.Environment.Context)
	b.line = block.Location.Line
	b.enter()
	defer b.leave()
	if _, ok := r.Output.(*limitedWriter); !ok { // a macro's, or that of {% set x %}…{% endset %}
		r.Output = &limitedWriter{r.Output, b}
	}
	if err := s.ControlStructure.Execute(r, block); err != nil {
		return err
	}
	switch inner := s.ControlStructure.(type) {
	case *controls.MacroControlStructure:
		made, _ := r.Environment.Context.Get(inner.Name)
		run := made.(exec.Macro)
		r.Environment.Context.Set(inner.Name, exec.Macro(func(params *exec.VarArgs) *exec.Value {
			b.enter()
			defer b.leave()
			out := run(params)
			sizeOf(out)
			return out
		}))
	case *controls.SetControlStructure:
		if name := rootOf(reflect.ValueOf(inner).Elem().FieldByName("target")); name != "" {
			value, _ := r.Environment.Context.Get(name)
			sizeOf(exec.ToValue(value))
		}
	}
	return nil
}

// rootOf returns the variable at the root of a target: ns of ns.x.
func rootOf(target reflect.Value) string {
	for target.Kind() == reflect.Interface {
		target = target.Elem()
	}
	switch n := pointed(target).(type) {
	case *nodes.Name:
		return n.Name.Val
	case *nodes.GetAttribute:
		return rootOf(reflect.ValueOf(n.Node))
	case *nodes.GetItem:
		return rootOf(reflect.ValueOf(n.Node))
	}
	return ""
}

// pointed returns the node that v points to, whether or not the field that holds it is exported.
func pointed(v reflect.Value) any {
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil
	}
	return reflect.NewAt(v.Type().Elem(), v.UnsafePointer()).Interface()
}

// call returns the expression NAME(args).
func call(name string, at *tokens.Token, args ...nodes.Expression) nodes.Expression {
	return &nodes.Call{Location: at, Func: &nodes.Name{Name: &tokens.Token{Val: name, Line: at.Line, Col: at.Col}}, Args: args}
}

// shown is the expression as it becomes text.
func shown(at *tokens.Token, n nodes.Expression) nodes.Expression {
	return call(checkName, at, call(lineName, at, &nodes.Integer{Location: at, Val: at.Line}), n)
}

// watch puts checks around what a template prints, compares, repeats and joins: everywhere else values are no larger
// than those they are made of. It also counts the calls that another call is made on (x.strip().strip()): the library
// evaluates them twice each.
func watch(v reflect.Value, seen map[any]bool) {
	switch v.Kind() {
	case reflect.Interface:
		watch(v.Elem(), seen)
	case reflect.Slice:
		for i := range v.Len() {
			watch(v.Index(i), seen)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			watch(it.Value(), seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			watch(v.Field(i), seen)
		}
	case reflect.Pointer:
		if v.IsNil() || v.Type() == reflect.TypeFor[*tokens.Token]() {
			return
		}
		node := pointed(v)
		if seen[node] {
			return
		}
		seen[node] = true
		watch(v.Elem(), seen)
		switch n := node.(type) {
		case *nodes.Output:
			n.Expression = shown(n.Start, n.Expression)
			if n.Alternative != nil {
				n.Alternative = shown(n.Start, n.Alternative)
			}
		case *nodes.BinaryExpression:
			switch at := n.Operator.Token; at.Type {
			case tokens.And, tokens.Or:
			case tokens.Tilde:
				n.Left, n.Right = shown(at, n.Left), shown(at, n.Right)
			case tokens.Equals, tokens.Ne:
				n.Left, n.Right = call(equalName, at, n.Left, n.Right), &nodes.Bool{Location: at, Val: true}
			case tokens.Addition:
				line := &nodes.Integer{Location: at, Val: at.Line}
				n.Left, n.Right = call(addendName, at, n.Left, line), call(addendName, at, n.Right, line)
			case tokens.Multiply:
				n.Left, n.Right = call(timesName, at, n.Left, n.Right), &nodes.Integer{Location: at, Val: 1}
			case tokens.Division, tokens.FloorDivision, tokens.Modulo:
				n.Left = call(operatorName(at.Val), at, n.Left, n.Right, &nodes.Integer{Location: at, Val: at.Line})
				n.Operator = &nodes.BinOperator{Token: &tokens.Token{Type: tokens.Multiply, Val: "*", Line: at.Line, Col: at.Col}}
				n.Right = &nodes.Integer{Location: at, Val: 1}
			default:
				n.Left, n.Right = call(checkName, at, n.Left), call(checkName, at, n.Right)
			}
		case *nodes.GetItem: // x[y] is item(x, y)[0]; a name needs no help
			if _, name := n.Arg.(*nodes.String); !name && n.Arg != nil {
				n.Node = call(itemName, n.Location, n.Node.(nodes.Expression), n.Arg.(nodes.Expression))
				n.Arg = &nodes.Integer{Location: n.Location}
			}
		case *nodes.Call:
			if method, ok := n.Func.(*nodes.GetAttribute); ok {
				if _, ok := method.Node.(*nodes.Call); ok {
					method.Node = call(checkName, &tokens.Token{}, method.Node)
				}
			}
		}
	}
}

// plain returns an error of the library as one short line.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:100], "") + " … " + strings.ToValidUTF8(text[len(text)-380:], "")
	}
	return text
}
