package sweepreport

import (
	"strings"
	"testing"

	"fulcrum/reports/chart"
)

func TestGeometric(t *testing.T) {
	for values, want := range map[string]bool{"0.02 0.1 0.5": true, "0.1 0.2 0.5 1": true, "1e-5 3e-5 1e-4": true,
		"1 5 10": false, "0 1 2 3": false,
		"0.1 0.2 0.3 0.4": false, "1 2 4": false, "0.5 0.02 0.1": true, "a b c": false, "1 10": false} {
		if got := geometric(strings.Fields(values)); got != want {
			t.Errorf("geometric(%s) = %v, want %v", values, got, want)
		}
	}
}

// A whisker ends inside its axis, which grows for it.
func TestWhiskersFitTheirAxis(t *testing.T) {
	p := &chart.Panel{YMin: 0.4, YMax: 0.6}
	w := &whiskers{x: []float64{1}, mean: []float64{0.58}, sd: []float64{0.05}}
	w.widen(p, objectiveScale{})
	if p.YMax <= 0.63 || p.YMin != 0.4 || w.high != p.YMax {
		t.Errorf("the axis reaches from %g to %g, the whisker to 0.63", p.YMin, p.YMax)
	}
	w.sd[0] = 7
	w.widen(p, objectiveScale{})
	if p.YMax > 1 || p.YMin < 0 {
		t.Errorf("one wild whisker squeezes all others: %g to %g", p.YMin, p.YMax)
	}
}
