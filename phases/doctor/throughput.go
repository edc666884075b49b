package doctor

import (
	"fmt"

	"fulcrum/internal/stat"
)

// stretches is how many parts a phase is cut into when its speed is judged, of at least stretchSteps each.
const (
	stretches    = 10
	stretchSteps = 5
)

// Throughput looks at the wall time of a phase's steps, in order, and says where they slowed down. It
// depends on the machine, so that its finding may stand in run.log, summary.json and the report, and never
// in metrics.jsonl; it never stops a run.
func Throughput(phase string, seconds []float64, opt Options) []Finding {
	o := opt.ThroughputDrop
	size := max(stretchSteps, len(seconds)/stretches)
	if !opt.Enabled || o.Severity == Off || len(seconds) < 2*size+1 {
		return nil
	}
	seconds = seconds[1:] // the first step pays for whatever is made once
	if o.Severity == Stop {
		o.Severity = Warning
	}
	typical := stat.Middle(seconds)
	worst, at := 0.0, 0
	for from := 0; from+size <= len(seconds); from += size {
		if m := stat.Middle(seconds[from : from+size]); m > worst {
			worst, at = m, from
		}
	}
	if typical <= 0 || worst <= o.Limit*typical {
		return nil
	}
	return []Finding{{Check: "throughput_drop", Severity: o.Severity, Value: worst / typical, Limit: o.Limit,
		Message: fmt.Sprintf("steps %d to %d of %s took %.3g s each, %.3g times the phase's typical %.3g s: something else used the "+
			"machine, memory ran short, or the batches grew", at+2, at+1+size, phase, worst, worst/typical, typical)}}
}
