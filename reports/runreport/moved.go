package runreport

import (
	"fmt"
	"math"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// hardlyMoved is the share of its probability below which a policy has hardly moved: what it selects is nearly what the initial one does.
const hardlyMoved = 0.2

// movedAtMost is the largest share of their probability that the trained policy of a line and the initial one can give to different
// selections, from the KL on validation queries; ok where it is known. By Pinsker's inequality a KL of d nats bounds it by √(d/2), also
// the mean over queries (Jensen); phases that each measure from their own start add up. An untrained line stands for the last epoch.
func movedAtMost(run *record.Run, stage *record.StageResult) (share float64, ok bool) {
	before, within, phase := 0.0, 0.0, ""
	for _, e := range run.Epochs {
		kl, known := e.Number("val_kl")
		reference := e.Text("kl_reference")
		if !known || reference != record.PolicyInit && reference != "phase_start" {
			return 0, false
		}
		if e.Phase != phase {
			before, phase = before+within, e.Phase
		}
		if within = math.Sqrt(max(kl, 0) / 2); reference == record.PolicyInit {
			before = 0
		}
		if !untrained(stage) && e.Phase == stage.Phase && e.Epoch == stage.Epoch {
			break
		}
	}
	return min(1, before+within), phase != ""
}

// unmoved says of a policy that is no better than the initial one that it is nearly the same; "" elsewhere.
func unmoved(run *record.Run, stage *record.StageResult) string {
	share, ok := movedAtMost(run, stage)
	if !ok || share >= hardlyMoved || stage.OverInit != nil && stage.OverInit.Verdict == stats.Better {
		return ""
	}
	return fmt.Sprintf("The policy hardly moved: by its KL on validation at most %s of the probability of its selections differs from the "+
		"initial policy's (below %s is hardly). That is no sign that there is nothing to learn: a higher learning rate or longer rows of the "+
		"embeddings come first.", page.Percent(share), page.Percent(hardlyMoved))
}
