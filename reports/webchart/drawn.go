// Package webchart holds the charts of web pages, those of report.html and of run board: their scripts and the data that they draw.
//
//	more, err := webchart.Lively(data)
package webchart

import (
	"math"
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
