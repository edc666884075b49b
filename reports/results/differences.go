package results

import (
	"math"

	"fulcrum/reports/stats"
)

// Differences are those that a verdict rests on, for a forest plot.
type Differences struct {
	What string       `json:"what"` // that is compared, and on what
	Rows []Difference `json:"rows"`
}

// Difference is a mean with its interval, as numbers and as the tables write them.
type Difference struct {
	Label   string        `json:"label,omitempty"`
	Mean    float64       `json:"mean"`
	Low     float64       `json:"low"`
	High    float64       `json:"high"`
	Verdict stats.Verdict `json:"verdict"`
	Text    string        `json:"text"`
	Words   string        `json:"words"` // the verdict with what keeps it open and its marks
}

// DifferenceOf is a comparison under a label.
func DifferenceOf(label string, p *stats.Paired) *Difference {
	text, _, _, words := p.Cells()
	return &Difference{label, p.Mean, p.Interval.Low, p.Interval.High, p.Verdict, text, words}
}

// Add adds a comparison; one without a finite interval has no place on an axis.
func (d *Differences) Add(label string, p *stats.Paired) {
	if size := math.Abs(p.Interval.Low) + math.Abs(p.Interval.High); !math.IsInf(size, 0) && !math.IsNaN(size) {
		d.Rows = append(d.Rows, *DifferenceOf(label, p))
	}
}
