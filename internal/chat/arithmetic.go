package chat

import (
	"fmt"
	"math"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// times returns the product of its arguments as the library computes it, within limits: "a" * 10**10.
func times(_ *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	left, right := params.Args[0], params.Args[1]
	if right.IsString() { // 3 * "a"
		left, right = right, left
	}
	for _, v := range []*exec.Value{left, right} {
		if !v.IsNumber() && !v.IsBool() && (v == right || !v.IsString()) { // of which the library makes 0
			panic(refused("* of " + natureOf(v) + ": want two numbers, or a text and a number"))
		}
	}
	switch {
	case left.IsString(): // 10**10 is a float to the library
		text, n := left.String(), max(0, numberOf(right))
		if float64(len(text))*n > maxText {
			exceed("a text of %d bytes %.0f times", len(text), n)
		}
		return exec.AsValue(strings.Repeat(text, int(n)))
	case left.IsFloat() || right.IsFloat():
		return exec.AsValue(numberOf(left) * numberOf(right))
	}
	x, y := wholeOf(left), wholeOf(right)
	if x != 0 && x*y/x != y {
		exceed("%d times %d", x, y)
	}
	return exec.AsValue(x * y)
}

// divides is divide as a template calls it, with the line that it stands on.
func divides(operator string) func(*exec.Evaluator, *exec.VarArgs) *exec.Value {
	return func(e *exec.Evaluator, params *exec.VarArgs) *exec.Value {
		b := budgetOf(e.Environment.Context)
		b.line = params.Args[2].Integer()
		x, err := divide(operator, params.Args[0], params.Args[1])
		if err != nil {
			panic(refused(fmt.Sprintf("line %d: %v", b.line, err)))
		}
		return exec.AsValue(x)
	}
}

// divide returns left/right, left//right or left%right as Python computes them: the last two round down. The library panics at a zero
// or goes on with +Inf, and takes a text for 0.
func divide(operator string, left, right *exec.Value) (any, error) {
	for _, v := range []*exec.Value{left, right} {
		if v.IsError() {
			return nil, v
		}
		if !v.IsNumber() && !v.IsBool() {
			return nil, fmt.Errorf("%s of %s: want two numbers (a text is formatted by |format)", operator, natureOf(v))
		}
	}
	x, y := numberOf(left), numberOf(right)
	if y == 0 {
		return nil, fmt.Errorf("%s by zero", operator)
	}
	switch whole := !left.IsFloat() && !right.IsFloat(); {
	case operator == "/":
		return x / y, nil
	case operator == "//" && !whole:
		return math.Floor(x / y), nil
	case operator == "//":
		x, y := wholeOf(left), wholeOf(right)
		rest := modulo(x%y, y)
		return x/y - (rest-x%y)/y, nil // one less where the signs differ
	case whole:
		return modulo(wholeOf(left)%wholeOf(right), wholeOf(right)), nil
	}
	return modulo(math.Mod(x, y), y), nil
}

// modulo gives the rest of a division by y the sign of y.
func modulo[T int | float64](rest, y T) T {
	if rest != 0 && rest < 0 != (y < 0) {
		rest += y
	}
	return rest
}

// numberOf returns a number or a truth value, which counts as 0 or 1, as float64.
func numberOf(v *exec.Value) float64 {
	if v.IsBool() && v.Bool() {
		return 1
	}
	return v.Float()
}

// wholeOf is numberOf of a whole number.
func wholeOf(v *exec.Value) int {
	if v.IsBool() {
		return int(numberOf(v))
	}
	return v.Integer()
}

// natureOf names what a value is.
func natureOf(v *exec.Value) string {
	switch {
	case v.IsNil():
		return "nothing"
	case v.IsString():
		return "a text"
	case v.IsDict():
		return "a dict"
	case v.IsList():
		return "a list"
	}
	return "a value that is not a number"
}
