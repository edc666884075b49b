package preflight

import (
	"fmt"
	"math"

	"fulcrum/internal/hostmem"
	"fulcrum/phases/doctor"
)

// Disk adds a finding where what a run writes takes too much of the bytes that are free in its folder (NaN: unknown): a stop where it
// cannot fit, unless the run may end early.
func (r *Report) Disk(need, free float64, mayEnd bool) {
	worst, said := doctor.Stop, "do not fit"
	share := need / math.Max(free, 1)
	switch {
	case math.IsNaN(free), share <= crowded:
		return
	case share <= 1:
		worst, said = doctor.Warning, "fill the disk"
	case mayEnd:
		worst, said = doctor.Warning, "do not fit unless the run ends early"
	}
	r.add(Name, worst, doctor.Finding{Check: "disk", Value: share, Limit: crowded, Key: "checkpoint.keep",
		Message: fmt.Sprintf("checkpoints and states take up to %s of the %s that are free in the run's folder: they %s; set checkpoint.keep, "+
			"raise checkpoint.every_epochs, or choose another hydra.run.dir", hostmem.Size(need), hostmem.Size(free), said)})
}
