package doctor

import "fmt"

// Check looks at the rows of a run for one thing that goes wrong. docs/doctor.md says of each what a finding means and what to do.
type Check struct {
	Name     string
	Severity Severity // of its finding
	Limit    float64  // what a number of the rows is held against; 0 where nothing is
	Steps    int      // that it looks back over, or that must agree in a row, before it speaks; 0: one is enough

	step, epoch func(*Doctor, Check, row) // look at every step's row, at every finished epoch's; either may be nil
}

// Checks lists every check of the doctor but nonfinite, which always stops a run. They look at a row in this order.
func Checks() []Check {
	return []Check{
		noSignal(), allGoodGroups(), allBadGroups(), essUniform(), essCollapsed(), batchRepeats(), ratioNotOne(), ratioStuckAtOne(),
		ratioClipped(), ratioClamped(), objectiveFalls(), klAboveBand(), klBelowBand(), betaAtBound(), betaWrongWay(), klStuckAtZero(),
		klNotZero(), klNegative(), entropyCollapse(), allTruncated(), samplingCut(), gradientSpike(), zeroGradient(), zeroLR(),
		lossPartsDiffer(), lossDiverges(), lrOffSchedule(), tauOffSchedule(), topKOffCurriculum(), advantageBeyondClip(),
		advantageNotCentred(), littleSignal(), advantageSigns(), surrogateDiffers(), clipIgnored(), momentsReset(), cutCountsAsWhole(),
		queriesMissing(), orderRepeats(), validationDiverges(), validationUnchanged(), worseThanStart(), validationFalls(),
		validationMisreported(), throughputDrop(),
	}
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

func ifThen(is bool, then, otherwise string) string {
	if is {
		return then
	}
	return otherwise
}
