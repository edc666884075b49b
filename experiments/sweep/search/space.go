package search

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
)

// space maps trials to points of the unit cube and back. A number has the scale of its axis (log where it is
// tagged so), so that equal distances in the cube mean as much everywhere; a choice has equal parts of [0, 1).
type space struct{ axes []axis }

// axis is one dimension.
type axis struct {
	key     string
	choices []string  // of a choice or range, else nil
	numbers []float64 // of a range: its choices as numbers, rising or falling
	integer bool      // of an interval
	log     bool
	low     float64 // of an interval, both included
	high    float64
	from    float64 // of a number: ends of the axis on its scale; for whole steps half a step beyond the last
	to      float64
}

// categorical reports whether the values have no order.
func (a *axis) categorical() bool { return a.choices != nil && a.numbers == nil }

// newSpace checks the dimensions of a sweep.
func newSpace(dims []configs.Dimension) (*space, error) {
	if len(dims) == 0 {
		return nil, errors.New("no key is swept: want at least one key=interval(…), key=range(…) or key=choice(…)")
	}
	s := &space{}
	for _, d := range dims {
		a, err := newAxis(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Key, err)
		}
		s.axes = append(s.axes, a)
	}
	return s, nil
}

func newAxis(d configs.Dimension) (axis, error) {
	a := axis{key: d.Key, choices: d.Choices, log: d.Log()}
	switch {
	case d.Interval():
		return a.interval(d)
	case len(d.Choices) == 0:
		return a, errors.New("the sweep has no values")
	case !d.Ordered || len(d.Choices) == 1:
		if a.log && !d.Ordered {
			return a, errors.New("tag(log, …) is for numbers on an axis: want interval() or range() inside")
		}
		return a, nil
	}
	for _, text := range d.Choices {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return a, fmt.Errorf("range() value %q is no number", text)
		}
		if a.log && x <= 0 {
			return a, fmt.Errorf("tag(log, …) wants numbers above 0, got %s", text)
		}
		a.numbers = append(a.numbers, x)
	}
	n := len(a.numbers)
	first, second := a.scale(a.numbers[0]), a.scale(a.numbers[1])
	last, before := a.scale(a.numbers[n-1]), a.scale(a.numbers[n-2])
	a.from, a.to = first-(second-first)/2, last+(last-before)/2
	return a, nil
}

func (a axis) interval(d configs.Dimension) (axis, error) {
	a.low, a.high, a.integer = d.Low, d.High, d.Int
	if math.IsInf(d.Low, 0) || math.IsInf(d.High, 0) || math.IsNaN(d.Low) || math.IsNaN(d.High) {
		return a, fmt.Errorf("want finite ends of the interval, got %g and %g", d.Low, d.High)
	}
	margin := 0.0
	if a.integer {
		a.low, a.high, margin = math.Trunc(d.Low), math.Trunc(d.High), 0.5
	}
	if a.log && a.low <= 0 {
		return a, fmt.Errorf("tag(log, …) wants an interval above 0, got one from %g", a.low)
	}
	a.from, a.to = a.scale(a.low-margin), a.scale(a.high+margin)
	if !(a.from < a.to) || math.IsInf(a.to-a.from, 0) {
		return a, fmt.Errorf("want start < end, got %g and %g", a.low, a.high)
	}
	return a, nil
}

func (a *axis) scale(x float64) float64 {
	if a.log {
		return math.Log(x)
	}
	return x
}

// text returns the value at u in [0, 1], as written behind key=.
func (a *axis) text(u float64) string {
	if a.categorical() {
		return a.choices[a.index(u)]
	}
	t := a.from + u*(a.to-a.from)
	if a.numbers != nil {
		return a.choices[a.nearest(t)]
	}
	x := t
	if a.log {
		x = math.Exp(t)
	}
	x = min(max(x, a.low), a.high)
	if a.integer {
		return strconv.FormatFloat(min(max(math.Round(x), a.low), a.high), 'f', 0, 64)
	}
	return a.decimal(x)
}

// index returns the choice at u.
func (a *axis) index(u float64) int {
	return min(max(int(u*float64(len(a.choices))), 0), len(a.choices)-1)
}

// nearest returns the value of a range that is nearest to t on its scale.
func (a *axis) nearest(t float64) int {
	best := 0
	for i, x := range a.numbers {
		if math.Abs(a.scale(x)-t) < math.Abs(a.scale(a.numbers[best])-t) {
			best = i
		}
	}
	return best
}

// decimal writes a number of an interval with as many digits as are worth reading: six, more where the
// interval is narrow.
func (a *axis) decimal(x float64) string {
	narrow := math.Log10(max(math.Abs(a.low), math.Abs(a.high)) / (a.high - a.low)) // 0 for an interval from 0
	digits := 6 + int(max(0, math.Ceil(narrow-0.1)))
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', min(digits, 17), 64), 64)
	if err != nil {
		rounded = x
	}
	return float(min(max(rounded, a.low), a.high))
}

// float writes x as Python does, which is how sweeps write numbers.
func float(x float64) string {
	if abs := math.Abs(x); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// unit returns the inverse of text: for a choice, the middle of its part.
func (a *axis) unit(text string) (float64, error) {
	if a.choices != nil {
		i := slices.Index(a.choices, text)
		if i < 0 {
			return 0, fmt.Errorf("%s=%s is not among the sweep's values", a.key, text)
		}
		if a.numbers == nil {
			return (float64(i) + 0.5) / float64(len(a.choices)), nil
		}
		return a.share(a.scale(a.numbers[i])), nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= a.low && x <= a.high) {
		return 0, fmt.Errorf("%s=%s is not in the sweep's interval from %g to %g", a.key, text, a.low, a.high)
	}
	return a.share(a.scale(x)), nil
}

func (a *axis) share(t float64) float64 { return min(max((t-a.from)/(a.to-a.from), 0), 1) }

// texts returns the parameters of a point.
func (s *space) texts(point []float64) []string {
	return list.Make(len(s.axes), func(i int) string { return s.axes[i].text(point[i]) })
}

// point returns where a trial lies.
func (s *space) point(t sweeper.Trial) ([]float64, error) {
	if len(t.Params) != len(s.axes) {
		return nil, fmt.Errorf("trial %d has %d parameters, the sweep %d", t.Number, len(t.Params), len(s.axes))
	}
	point := make([]float64, len(s.axes))
	for i := range s.axes {
		var err error
		if point[i], err = s.axes[i].unit(t.Params[i]); err != nil {
			return nil, fmt.Errorf("trial %d: %w", t.Number, err)
		}
	}
	return point, nil
}

// numeric refuses choices without an order.
func (s *space) numeric() error {
	for _, a := range s.axes {
		if a.categorical() {
			return fmt.Errorf("%s=%s has no order, and this sweeper takes only numbers: use interval() or range(), fix the key, or "+
				"take hydra/sweeper=tpe", a.key, strings.Join(a.choices, ","))
		}
	}
	return nil
}

// tried returns the parameters of the history, to avoid proposing the same again: runs are deterministic.
func tried(history []sweeper.Trial) map[string]bool {
	return list.SetBy(history, func(t sweeper.Trial) string { return joined(t.Params) })
}

func joined(params []string) string { return strings.Join(params, "\x00") }
