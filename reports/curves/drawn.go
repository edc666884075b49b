package curves

import (
	"math"
	"slices"
	"strconv"
)

// Drawn is a series as a chart takes it: one point a bucket.
type Drawn struct {
	Steps  []int64                 `json:"steps"`
	Times  []float64               `json:"times"`
	Width  int                     `json:"width"` // rows of a point
	Series map[string]*DrawnColumn `json:"series"`
	Hist   [][]float64             `json:"hist,omitempty"`
}

// DrawnColumn has a mean a point; where a point is several rows, their extremes; where it is several runs, an interval.
type DrawnColumn struct {
	Mean Numbers    `json:"mean"`
	Min  Numbers    `json:"min,omitempty"`
	Max  Numbers    `json:"max,omitempty"`
	Low  Numbers    `json:"low,omitempty"` // of the interval of the mean over runs
	High Numbers    `json:"high,omitempty"`
	Bad  [][2]int64 `json:"bad,omitempty"` // steps with numbers that are not finite, and how many
}

// Numbers are floats of six digits; null stands for those that JSON does not have.
type Numbers []float64

// MarshalJSON implements json.Marshaler.
func (n Numbers) MarshalJSON() ([]byte, error) {
	out := append(make([]byte, 0, 10*len(n)+2), '[')
	for i, x := range n {
		if i > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, x, 'g', 7, 64)
		}
	}
	return append(out, ']'), nil
}

// DrawnOf makes at most points points of a series, of the metrics named; nil names means all.
func DrawnOf(s *Series, names []string, points int, hist bool) *Drawn {
	if n := len(s.First); n > points {
		s = s.joined((n + points - 1) / points)
	}
	d := &Drawn{Steps: slices.Clone(s.Last), Times: slices.Clone(s.Time), Width: s.Width, Series: map[string]*DrawnColumn{}}
	for i, name := range s.Names {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		c, out := s.Cols[i], &DrawnColumn{}
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
