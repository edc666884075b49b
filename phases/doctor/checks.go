package doctor

import "fmt"

// stepChecks look at every step's row, in this order; they read the windows that the row has just entered.
var stepChecks = []func(*Doctor, row){
	(*Doctor).noSignal, (*Doctor).allGoodGroups, (*Doctor).allBadGroups, (*Doctor).essUniform, (*Doctor).essCollapsed, (*Doctor).batchRepeats,
	(*Doctor).ratioNotOne, (*Doctor).ratioStuckAtOne, (*Doctor).ratioClipped, (*Doctor).ratioClamped, (*Doctor).objectiveFalls,
	(*Doctor).klAboveBand, (*Doctor).klBelowBand, (*Doctor).betaAtBound, (*Doctor).betaWrongWay, (*Doctor).klStuckAtZero, (*Doctor).klNotZero,
	(*Doctor).klNegative,
	(*Doctor).entropyCollapse, (*Doctor).allTruncated, (*Doctor).samplingCut,
	(*Doctor).gradientSpike, (*Doctor).zeroGradient, (*Doctor).zeroLR, (*Doctor).lossPartsDiffer, (*Doctor).lossDiverges,
	(*Doctor).lrOffSchedule, (*Doctor).tauOffSchedule, (*Doctor).topKOffCurriculum, (*Doctor).advantageBeyondClip,
	(*Doctor).advantageNotCentred,
	(*Doctor).littleSignal, (*Doctor).advantageSigns, (*Doctor).surrogateDiffers, (*Doctor).clipIgnored, (*Doctor).momentsReset,
	(*Doctor).cutCountsAsWhole,
}

// epochChecks look at every finished epoch's row.
var epochChecks = []func(*Doctor, row){
	(*Doctor).queriesMissing, (*Doctor).orderRepeats, (*Doctor).betaWrongWayEpoch, (*Doctor).validationDiverges,
	(*Doctor).validationUnchanged, (*Doctor).worseThanStart, (*Doctor).validationFalls, (*Doctor).validationMisreported,
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

func ifThen(is bool, then, otherwise string) string {
	if is {
		return then
	}
	return otherwise
}
