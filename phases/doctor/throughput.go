package doctor

import (
	"fmt"
	"slices"

	"fulcrum/internal/stat"
)

// stretches is how many parts a phase is cut into when its speed is judged, of at least stretchSteps each.
const (
	stretches    = 10
	stretchSteps = 5
)

const throughput = "throughput_drop"

// Throughput looks at the wall time of a phase's steps, in order, and says where they slowed down. It
// depends on the machine, so that its finding may stand in run.log, summary.json and the report, and never
// in metrics.jsonl; it never stops a run. It is silent where checks lack it.
func Throughput(phase string, seconds []float64, checks []Check) []Finding {
	size := max(stretchSteps, len(seconds)/stretches)
	at := slices.IndexFunc(checks, func(c Check) bool { return c.Name == throughput })
	if at < 0 || checks[at].Severity == Off || len(seconds) < 2*size+1 {
		return nil
	}
	c := checks[at]
	seconds = seconds[1:] // the first step pays for whatever is made once
	if c.Severity == Stop {
		c.Severity = Warning
	}
	typical := stat.Middle(seconds)
	worst, from := 0.0, 0
	for i := 0; i+size <= len(seconds); i += size {
		if m := stat.Middle(seconds[i : i+size]); m > worst {
			worst, from = m, i
		}
	}
	if typical <= 0 || worst <= c.Limit*typical {
		return nil
	}
	return []Finding{{Check: c.Name, Severity: c.Severity, Value: worst / typical, Limit: c.Limit, Step: from + 2,
		Message: fmt.Sprintf("steps %d to %d of %s took %.3g s each, %.3g times the phase's typical %.3g s: something else used the "+
			"machine, memory ran short, or the batches grew", from+2, from+1+size, phase, worst, worst/typical, typical)}}
}
