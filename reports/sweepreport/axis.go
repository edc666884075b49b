package sweepreport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/sweeps"
)

// sweepAxis places the values of a swept key: numbers by their value or logarithm, words side by side.
type sweepAxis struct {
	dim       sweeps.Dimension
	numeric   bool
	ordered   bool     // numbers, or numbers side by side
	log       bool     // positions are decimal logarithms
	grid      bool     // few values that many jobs share
	integers  bool     // all values are whole
	shared    bool     // a grid in which some jobs have the same value
	levels    []string // words in order, as shown; their positions are 0, 1, …
	positions map[string]float64
	written   map[float64]string // values by position, as shown
	stops     []float64          // distinct positions in order, of a grid
	low, high float64            // positions of the extreme values
}

// gridValues is how many different values a key without a list of them may have to count as a grid.
const gridValues = 12

// newSweepAxis looks at the values that the key could have and has in the jobs.
func newSweepAxis(dim sweeps.Dimension, jobs []sweeps.Job) *sweepAxis {
	a := &sweepAxis{dim: dim, positions: map[string]float64{}, written: map[float64]string{}}
	texts := slices.Clone(dim.Values)
	count := map[string]int{}
	for _, j := range jobs {
		if text, ok := j.Params[dim.Key]; ok {
			texts = append(texts, text)
			count[text]++
			a.shared = a.shared || count[text] > 1
		}
	}
	seen := map[string]bool{}
	texts = slices.DeleteFunc(texts, func(t string) bool { was := seen[t]; seen[t] = true; return was })
	a.numeric, a.integers = len(texts) > 0, true
	low, lowPositive, high := math.Inf(1), math.Inf(1), math.Inf(-1)
	for _, t := range texts {
		x, ok := numberOf(t)
		a.numeric = a.numeric && ok
		a.integers = a.integers && x == math.Trunc(x)
		low, high = min(low, x), max(high, x)
		if x > 0 {
			lowPositive = min(lowPositive, x)
		}
	}
	a.ordered = a.numeric
	a.grid = !dim.Interval && (len(dim.Values) > 0 || len(texts) <= gridValues)
	if a.numeric && a.grid && low <= 0 && high >= 100*lowPositive {
		slices.SortStableFunc(texts, func(s, t string) int { x, _ := numberOf(s); y, _ := numberOf(t); return cmp.Compare(x, y) })
		a.numeric = false // 0 has no place among 1e-5, 1e-4, 1e-3: they stand side by side, in order
	}
	if a.numeric {
		a.log = low > 0 && (dim.Log || high >= 100*low || geometric(texts))
	} else {
		a.grid = true
	}
	a.shared = a.shared && a.grid
	for i, t := range texts {
		u := float64(i)
		if a.numeric {
			u, _ = numberOf(t)
			if a.log {
				u = math.Log10(u)
			}
		} else {
			a.levels = append(a.levels, unquoted(t))
		}
		a.positions[t] = u
		if a.written[u] == "" {
			a.written[u] = unquoted(t)
		}
		a.stops = append(a.stops, u)
	}
	slices.Sort(a.stops)
	a.stops = slices.Compact(a.stops)
	if len(a.stops) > 0 {
		a.low, a.high = a.stops[0], a.stops[len(a.stops)-1]
	}
	return a
}

// geometric says whether the values of a key are steps by a factor rather than by a difference, over a factor of ten or
// more: 0.02, 0.1, 0.5 and 0.1, 0.2, 0.5, 1, but not 1, 5, 10.
func geometric(texts []string) bool {
	var values []float64
	for _, t := range texts {
		if x, ok := numberOf(t); ok && x > 0 {
			values = append(values, x)
		}
	}
	slices.Sort(values)
	values = slices.Compact(values)
	if len(values) < 3 || values[len(values)-1] < 10*values[0] {
		return false
	}
	const most = 2.5 // by which the largest of equal steps may exceed the smallest: 1, 2, 5, 10
	least, largest := math.Inf(1), 0.0
	for i, x := range values[1:] {
		step := math.Log(x / values[i])
		least, largest = min(least, step), max(largest, step)
	}
	return largest <= most*least && values[len(values)-1]-values[len(values)-2] > most*(values[1]-values[0])
}

// numberOf reads a value as it is written in an override; false where it is no finite number.
func numberOf(text string) (float64, bool) {
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && sweeps.Finite(x)
}

func unquoted(s string) string {
	if n := len(s); n > 1 && (s[0] == '\'' || s[0] == '"') && s[n-1] == s[0] {
		s = s[1 : n-1]
	}
	return cmp.Or(strings.Join(strings.Fields(s), " "), "''")
}

// at is the position of a job's value, false where the job has none.
func (a *sweepAxis) at(params map[string]string) (float64, bool) {
	text, ok := params[a.dim.Key]
	if !ok {
		return 0, false
	}
	u, ok := a.positions[text]
	return u, ok
}

// bounds is the range of an axis with room at its ends.
func (a *sweepAxis) bounds() (low, high float64) {
	air := 0.06 * (a.high - a.low)
	switch {
	case !a.numeric:
		air = 0.5
	case a.low == a.high:
		air = cmp.Or(0.1*math.Abs(a.low), 1)
		if a.log {
			air = 0.5
		}
	}
	return a.low - air, a.high + air
}

// ticks are those of a range of positions: every value of a small grid, else round numbers.
func (a *sweepAxis) ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	switch {
	case !a.numeric:
		for i, level := range a.levels {
			ticks = append(ticks, plot.Tick{Value: float64(i), Label: level})
		}
	case a.grid && len(a.stops) <= 9 || len(a.stops) == 1:
		for _, u := range a.stops {
			ticks = append(ticks, plot.Tick{Value: u, Label: a.gridText(u)})
		}
	case a.log && high-low > 2.2:
		every := max(1, int(chart.NiceStep((high-low)/6)))
		for e := int(math.Ceil(low - 1e-9)); float64(e) <= high+1e-9; e++ {
			if e%every == 0 {
				ticks = append(ticks, plot.Tick{Value: float64(e), Label: powerOfTen(e)})
			}
		}
	case a.log:
		for _, t := range (chart.LogTicks{}).Ticks(math.Pow(10, low), math.Pow(10, high)) {
			ticks = append(ticks, plot.Tick{Value: math.Log10(t.Value), Label: compactNumber(t.Value, 3)})
		}
		if len(ticks) < 2 { // less than a third of a decade
			ticks = nil
			for _, t := range (chart.LinearTicks{}).Ticks(math.Pow(10, low), math.Pow(10, high)) {
				if t.Value > 0 {
					ticks = append(ticks, plot.Tick{Value: math.Log10(t.Value), Label: exponent(t.Label)})
				}
			}
		}
	default:
		for _, t := range (chart.LinearTicks{Integers: a.integers && high-low < 1e6}).Ticks(low, high) {
			t.Label = exponent(t.Label)
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// valueText writes the value at a numeric position.
func (a *sweepAxis) valueText(u float64, digits int) string {
	if a.log {
		u = math.Pow(10, u)
	}
	return shortNumber(u, digits)
}

// gridText is a grid's value as it is written, unless it has more digits than an axis has room for.
func (a *sweepAxis) gridText(u float64) string {
	if text := a.written[u]; text != "" && len(text) <= 8 {
		return text
	}
	return a.valueText(u, 4)
}

// powerOfTen writes 10^e: 1e-4, 1e-3, 0.01, 1, 1000, 1e6.
func powerOfTen(e int) string {
	if e < -2 || e > 5 {
		return fmt.Sprintf("1e%d", e)
	}
	return shortNumber(math.Pow(10, float64(e)), 3)
}

// groups says for every position which group of values it is in: a grid's value, or the quarter of
// the jobs by rank. Groups are counted from 0 in the order of the axis; none is empty.
func (a *sweepAxis) groups(x []float64) []int {
	key := slices.Clone(x)
	if !a.grid {
		for i, r := range stat.Ranks(x) {
			key[i] = math.Floor(intervalGroups * (r - 0.5) / float64(len(x)))
		}
	}
	values := slices.Compact(slices.Sorted(slices.Values(key)))
	return list.Map(key, func(k float64) int {
		at, _ := slices.BinarySearch(values, k)
		return at
	})
}

// groupName is the value or the range of values of group g, for a table.
func (a *sweepAxis) groupName(x []float64, group []int, g int) string {
	low, high := math.Inf(1), math.Inf(-1)
	for i, u := range x {
		if group[i] == g {
			low, high = min(low, u), max(high, u)
		}
	}
	switch {
	case !a.numeric:
		return page.Plain(a.levels[int(low)])
	case low == high:
		return a.gridText(low)
	}
	return fmt.Sprintf("%s … %s", a.valueText(low, 2), a.valueText(high, 2))
}
