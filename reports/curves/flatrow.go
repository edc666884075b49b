package curves

import (
	"bytes"
	"errors"
	"strconv"

	"fulcrum/reports/record"
)

var errDamaged = errors.New("damaged row")

// flatRow is one line of metrics.jsonl, read without a map: a run of a million steps is read in seconds. Its slices
// point into the line and are reused for the next one.
type flatRow struct {
	kind, phase []byte
	step        int64 // global
	epoch, own  int   // of its phase: epoch and step
	time        float64
	names       [][]byte
	values      []float64
	hist        []float64 // adv_hist
}

var advHist = []byte("adv_hist")

// parse reads a line: an object of numbers, strings and lists. Text fields are passed over.
func (r *flatRow) parse(line []byte) error {
	*r = flatRow{names: r.names[:0], values: r.values[:0], hist: r.hist[:0]}
	s := bytes.TrimSpace(line)
	if len(s) < 2 || s[0] != '{' || s[len(s)-1] != '}' {
		return errDamaged
	}
	s = s[1:]
	for {
		s = space(s)
		if len(s) > 0 && s[0] == '}' {
			break
		}
		key, rest, ok := quoted(s)
		if !ok {
			return errDamaged
		}
		rest = space(rest)
		if len(rest) == 0 || rest[0] != ':' {
			return errDamaged
		}
		value, after, ok := token(space(rest[1:]))
		if !ok {
			return errDamaged
		}
		r.field(key, value)
		if s = space(after); len(s) > 0 && s[0] == ',' {
			s = s[1:]
		} else if len(s) == 0 || s[0] != '}' {
			return errDamaged
		}
	}
	if r.kind == nil {
		return errDamaged
	}
	return nil
}

func (r *flatRow) field(key, value []byte) {
	switch string(key) {
	case "kind":
		r.kind = bytes.Trim(value, `"`)
		return
	case "phase":
		r.phase = bytes.Trim(value, `"`)
		return
	case "epoch":
		r.epoch, _ = strconv.Atoi(string(value))
		return
	case "step":
		r.own, _ = strconv.Atoi(string(value))
		return
	}
	if bytes.Equal(key, advHist) && value[0] == '[' {
		for _, item := range bytes.Split(bytes.Trim(value, "[]"), []byte(",")) {
			if x, ok := number(bytes.TrimSpace(item)); ok {
				r.hist = append(r.hist, x)
			}
		}
		return
	}
	x, ok := number(value)
	if !ok {
		return
	}
	switch string(key) {
	case "global_step":
		r.step = int64(x)
	case "time":
		r.time = x
	default:
		r.names, r.values = append(r.names, key), append(r.values, x)
	}
}

func number(value []byte) (float64, bool) {
	if n := len(value); n > 1 && value[0] == '"' {
		return record.ParseNonFinite(string(value[1 : n-1]))
	}
	if len(value) == 0 || value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(value), 64)
	return x, err == nil
}

func space(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	return s
}

// quoted cuts a string off, without its quotes.
func quoted(s []byte) (text, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[1:i], s[i+1:], true
		}
	}
	return nil, nil, false
}

// token cuts a value off: a string with its quotes, a number or word, a list or an object.
func token(s []byte) (value, rest []byte, ok bool) {
	if len(s) == 0 {
		return nil, nil, false
	}
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			_, after, ok := quoted(s[i:])
			if !ok {
				return nil, nil, false
			}
			i = len(s) - len(after) - 1
			if depth == 0 {
				return s[:i+1], s[i+1:], true
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth == 0 { // the end of the row
				return s[:i], s[i:], i > 0
			}
			if depth--; depth == 0 {
				return s[:i+1], s[i+1:], true
			}
		case ',', ' ', '\t':
			if depth == 0 {
				return s[:i], s[i:], i > 0
			}
		}
	}
	return nil, nil, false
}
