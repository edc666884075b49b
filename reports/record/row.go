package record

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"fulcrum/internal/jsonwords"
)

// Kinds of rows in metrics.jsonl.
const (
	KindStep  = "step"  // one optimizer step
	KindEpoch = "epoch" // a finished epoch of a phase
	KindEval  = "eval"  // an evaluation of the initial policy, a baseline, a stage or another set
	KindEvent = "event" // something that a reader should know: resume, warning, early stop
)

// Row is one line of metrics.jsonl. Epoch, Step (within the phase) and GlobalStep count from 1; 0 is
// the time before the first.
type Row struct {
	Kind       string
	Phase      string
	Epoch      int
	Step       int
	GlobalStep int
	Time       float64 // seconds since 1970
	Fields     map[string]any
}

// seconds is the time of a row: since 1970, to the millisecond.
func seconds(now time.Time) float64 { return float64(now.UnixMilli()) / 1000 }

// Number returns a numeric field, or false when it is absent or no number.
func (r Row) Number(name string) (float64, bool) {
	switch v := r.Fields[name].(type) {
	case float64:
		return v, true
	case int: // of a row that is being written
		return float64(v), true
	case string:
		return ParseNonFinite(v)
	}
	return 0, false
}

// Text returns a string field, "" when it is absent.
func (r Row) Text(name string) string {
	s, _ := r.Fields[name].(string)
	return s
}

// Numbers returns a list field, or nil.
func (r Row) Numbers(name string) []float64 {
	if list, ok := r.Fields[name].([]float64); ok { // of a row that is being written
		return list
	}
	list, _ := r.Fields[name].([]any)
	var out []float64
	for _, v := range list {
		switch v := v.(type) {
		case float64:
			out = append(out, v)
		case string:
			f, ok := ParseNonFinite(v)
			if !ok {
				return nil
			}
			out = append(out, f)
		default:
			return nil
		}
	}
	return out
}

// ParseNonFinite reads a number that JSON has not.
func ParseNonFinite(s string) (float64, bool) {
	switch s {
	case "nan":
		return math.NaN(), true
	case "inf":
		return math.Inf(1), true
	case "-inf":
		return math.Inf(-1), true
	}
	return 0, false
}

// appendRow writes r as one JSON line: kind, phase, epoch, step, global_step, time, then the fields
// in metric order. The bytes depend on nothing but r.
func appendRow(b []byte, r Row, order MetricOrder) ([]byte, error) {
	b = fmt.Appendf(b, `{"kind":%s,"phase":%s,"epoch":%d,"step":%d,"global_step":%d,"time":%.3f`, jsonString(r.Kind), jsonString(r.Phase),
		r.Epoch, r.Step, r.GlobalStep, r.Time)
	names := slices.Collect(maps.Keys(r.Fields))
	order.Sort(names)
	for _, name := range names {
		switch name {
		case "kind", "phase", "epoch", "step", "global_step", "time":
			return nil, fmt.Errorf("metrics.jsonl: field %s: every row has it already", name)
		}
		b = fmt.Appendf(b, ",%s:", jsonString(name))
		var err error
		if b, err = appendValue(b, r.Fields[name]); err != nil {
			return nil, fmt.Errorf("metrics.jsonl: field %s: %w", name, err)
		}
	}
	return append(b, '}', '\n'), nil
}

func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case float64:
		return AppendNumber(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		return append(b, jsonString(v)...), nil
	case []float64:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendNumber(b, x)
		}
		return append(b, ']'), nil
	}
	return nil, fmt.Errorf("type %T: want float64, int, string, bool or []float64", v)
}

// AppendNumber writes the shortest decimal that reads back as x; what JSON has no number for
// becomes "nan", "inf" or "-inf".
func AppendNumber(b []byte, x float64) []byte {
	switch {
	case math.IsNaN(x):
		return append(b, `"nan"`...)
	case math.IsInf(x, 1):
		return append(b, `"inf"`...)
	case math.IsInf(x, -1):
		return append(b, `"-inf"`...)
	}
	format := byte('f')
	if abs := math.Abs(x); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, x, format, -1, 64)
}

func jsonString(s string) []byte {
	text, _ := jsonwords.Marshal(s) // a string always marshals
	return text
}

func ParseRow(line []byte) (Row, error) {
	fields := map[string]any{}
	if err := jsonwords.Unmarshal(line, &fields); err != nil {
		return Row{}, err
	}
	r := Row{Fields: fields}
	for _, text := range []struct {
		name string
		to   *string
	}{{"kind", &r.Kind}, {"phase", &r.Phase}} {
		s, ok := fields[text.name].(string)
		if !ok {
			return Row{}, fmt.Errorf("no %s", text.name)
		}
		*text.to = s
		delete(fields, text.name)
	}
	for _, count := range []struct {
		name string
		to   *int
	}{{"epoch", &r.Epoch}, {"step", &r.Step}, {"global_step", &r.GlobalStep}} {
		f, ok := fields[count.name].(float64)
		if !ok {
			return Row{}, fmt.Errorf("no %s", count.name)
		}
		*count.to = int(f)
		delete(fields, count.name)
	}
	r.Time, _ = fields["time"].(float64)
	delete(fields, "time")
	return r, nil
}
