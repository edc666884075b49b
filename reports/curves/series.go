package curves

import (
	"math"
	"slices"

	"fulcrum/reports/webchart"
)

// Capacity is how many buckets a series has at most: twice what a screen shows of a curve.
const Capacity = 2048

// Series holds rows in at most Capacity buckets of equally many rows. When they are full, neighbours are joined: memory
// does not grow with a run, and the smallest and largest value of every bucket stay exact.
type Series struct {
	Width int // rows of a bucket
	Rows  int
	First []int64   // global step of a bucket's first row
	Last  []int64   // and of its last
	Time  []float64 // of its last row, seconds since 1970
	At    []int64   // byte at which its first row begins
	Names []string
	Cols  []*Column
	Hist  [][]float64 // adv_hist, summed over a bucket's rows; nil where a row has none
	index map[string]int
}

// Column is one metric of a series. A bucket without a number has N 0.
type Column struct {
	Min, Max, Sum []float64
	N             []int32 // finite numbers
	Bad           []int32 // numbers that are not finite
}

func newSeries() *Series { return &Series{Width: 1, index: map[string]int{}} }

// restore makes what is not saved.
func (s *Series) restore() {
	s.index = make(map[string]int, len(s.Names))
	for i, name := range s.Names {
		s.index[name] = i
	}
}

// Of returns a metric's column, nil for one that no row has.
func (s *Series) Of(name string) *Column {
	if i, ok := s.index[name]; ok {
		return s.Cols[i]
	}
	return nil
}

func (s *Series) add(r *flatRow, at int64) {
	b := s.Rows / s.Width
	if b == Capacity {
		*s = *s.joined(2)
		b = s.Rows / s.Width
	}
	s.Rows++
	if b == len(s.First) {
		s.First, s.Last = append(s.First, r.step), append(s.Last, r.step)
		s.Time, s.At, s.Hist = append(s.Time, r.time), append(s.At, at), append(s.Hist, nil)
	}
	s.Last[b], s.Time[b] = r.step, r.time
	for i, name := range r.names {
		k, ok := s.index[string(name)]
		if !ok {
			if len(s.Names) == maxMetrics {
				continue
			}
			k = len(s.Names)
			s.Names, s.Cols = append(s.Names, string(name)), append(s.Cols, &Column{})
			s.index[string(name)] = k
		}
		s.Cols[k].put(b, r.values[i])
	}
	if len(r.hist) > 0 && len(r.hist) <= maxBins {
		if len(s.Hist[b]) != len(r.hist) {
			s.Hist[b] = make([]float64, len(r.hist))
		}
		for i, n := range r.hist {
			s.Hist[b][i] += n
		}
	}
}

// What a row may bring at most: a file with endless names must not fill the memory.
const (
	maxMetrics = 400
	maxBins    = 200
)

func (c *Column) grow(n int) {
	for len(c.N) < n {
		c.Min, c.Max = append(c.Min, math.Inf(1)), append(c.Max, math.Inf(-1))
		c.Sum, c.N, c.Bad = append(c.Sum, 0), append(c.N, 0), append(c.Bad, 0)
	}
}

func (c *Column) put(b int, x float64) {
	c.grow(b + 1)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		c.Bad[b]++
		return
	}
	c.Min[b], c.Max[b] = min(c.Min[b], x), max(c.Max[b], x)
	c.Sum[b] += x
	c.N[b]++
}

// joined returns the series with each k buckets joined; the last may have fewer.
func (s *Series) joined(k int) *Series {
	n := (len(s.First) + k - 1) / k
	out := &Series{Width: s.Width * k, Rows: s.Rows, Names: s.Names, index: s.index, Hist: make([][]float64, n)}
	for b := range n {
		from, to := b*k, min(b*k+k, len(s.First))
		out.First, out.Last = append(out.First, s.First[from]), append(out.Last, s.Last[to-1])
		out.Time, out.At = append(out.Time, s.Time[to-1]), append(out.At, s.At[from])
		for _, h := range s.Hist[from:to] {
			if h != nil && len(out.Hist[b]) != len(h) {
				out.Hist[b] = make([]float64, len(h))
			}
			for i, x := range h {
				out.Hist[b][i] += x
			}
		}
	}
	for _, c := range s.Cols {
		j := &Column{}
		for b := range c.N {
			at := b / k
			j.grow(at + 1)
			j.Min[at], j.Max[at] = min(j.Min[at], c.Min[b]), max(j.Max[at], c.Max[b])
			j.Sum[at] += c.Sum[b]
			j.N[at] += c.N[b]
			j.Bad[at] += c.Bad[b]
		}
		out.Cols = append(out.Cols, j)
	}
	return out
}

// Between returns the buckets that hold rows of global steps from to to, and one on each side.
func (s *Series) Between(from, to int64) (low, high int) {
	for low = 0; low < len(s.Last) && s.Last[low] < from; low++ {
	}
	for high = low; high < len(s.First) && s.First[high] <= to; high++ {
	}
	return max(low-1, 0), min(high+1, len(s.First))
}

// Cut returns the buckets from low up to high.
func (s *Series) Cut(low, high int) *Series {
	out := &Series{Width: s.Width, Rows: s.Rows, Names: s.Names, index: s.index, First: s.First[low:high], Last: s.Last[low:high],
		Time: s.Time[low:high], At: s.At[low:high], Hist: s.Hist[low:high]}
	for _, c := range s.Cols {
		a, b := min(low, len(c.N)), min(high, len(c.N))
		out.Cols = append(out.Cols, &Column{c.Min[a:b], c.Max[a:b], c.Sum[a:b], c.N[a:b], c.Bad[a:b]})
	}
	return out
}

// Means are the numbers of a metric in the rows of global steps from to to: of a long series the means of buckets, NaN where there is none.
func (s *Series) Means(name string, from, to int64) []float64 {
	var out []float64
	if c := s.Of(name); c != nil {
		for b := range s.First {
			if s.First[b] >= from && s.Last[b] <= to {
				out = append(out, c.mean(b))
			}
		}
	}
	return out
}

// mean is a bucket's mean, NaN without a number.
func (c *Column) mean(b int) float64 {
	if b >= len(c.N) || c.N[b] == 0 {
		return math.NaN()
	}
	return c.Sum[b] / float64(c.N[b])
}

// Best is the largest or smallest number of all.
func (c *Column) Best(smallest bool) (float64, bool) {
	best, found := 0.0, false
	for b := range c.N {
		x := c.Max[b]
		if smallest {
			x = c.Min[b]
		}
		if c.N[b] > 0 && (!found || smallest == (x < best) && x != best) {
			best, found = x, true
		}
	}
	return best, found
}

// DrawnOf makes at most points points of a series, of the metrics named; nil names means all.
func DrawnOf(s *Series, names []string, points int, hist bool) *webchart.Drawn {
	if n := len(s.First); n > points {
		s = s.joined((n + points - 1) / points)
	}
	d := &webchart.Drawn{Steps: slices.Clone(s.Last), Times: slices.Clone(s.Time), Width: s.Width, Series: map[string]*webchart.DrawnColumn{}}
	for i, name := range s.Names {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		c, out := s.Cols[i], &webchart.DrawnColumn{}
		for b := range s.First {
			out.Mean = append(out.Mean, c.mean(b))
			if b < len(c.Bad) && c.Bad[b] > 0 {
				out.Bad = append(out.Bad, [2]int64{s.Last[b], int64(c.Bad[b])})
			}
			if s.Width == 1 {
				continue
			}
			low, high := math.NaN(), math.NaN()
			if b < len(c.N) && c.N[b] > 0 {
				low, high = c.Min[b], c.Max[b]
			}
			out.Min, out.Max = append(out.Min, low), append(out.Max, high)
		}
		d.Series[name] = out
	}
	if hist && slices.ContainsFunc(s.Hist, func(h []float64) bool { return h != nil }) {
		d.Hist = slices.Clone(s.Hist)
	}
	return d
}
