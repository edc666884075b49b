package doctor

import (
	"math"

	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/control"
	"fulcrum/rewardutil/schedule"
)

// Limits is what a phase promises about its rows, taken from its options and not from what it does: the
// doctor holds the rows against it.
type Limits struct {
	StepsPerEpoch int
	TotalSteps    int    // of the phase
	Epochs        int    // that the options ask for; 0: not known
	Passes        int    // optimizer steps on each batch
	StartsAtInit  bool   // the phase starts with the weights of the run's initial policy
	Online        bool   // candidates are sampled from the policy
	Text          bool   // the policy's steps are tokens
	LengthKey     string // the configuration key of the longest completion
	HalfPrecision bool   // the policy computes in 16 bits: equal weights agree less closely

	Queries  int  // of an epoch, where it takes every query once; 0: it does not
	Fresh    bool // the run's initial policy has learnt nothing
	Placebo  bool // rewards of training are those of other queries (control)
	Shuffled bool // epochs take their queries in orders of their own
	Longest  int  // tokens of the longest completion; 0: not known

	ClipNorm float64 // largest norm of a gradient that reaches the optimizer; 0: any
	Beta1    float64 // decay of the optimizer's first moment

	LR     float64 // peak
	LRPlan Plan
	Tau    *Tau // of RCE's weights; nil without
	// Imitation is how the loss of sft and rce is made; nil elsewhere, and where a program puts its own weights in.
	Imitation *Imitation
	Policy    *PolicyLoss // of GRPO; nil without
	Signed    bool        // the loss may be below 0: an expected reward
}

// Plan is the learning rate over a phase: a linear warm-up, then a decay towards 0.
type Plan schedule.LROptions

// at returns the factor on the peak at a step (from 0) of total.
func (p Plan) at(step, total int) float64 {
	warmup := math.Round(p.WarmupRatio * float64(total))
	if x := float64(step); x < warmup {
		return (x + 1) / warmup
	}
	done := math.Min(1, (float64(step)-warmup)/math.Max(1, float64(total)-warmup))
	switch p.Name {
	case "cosine":
		return 0.5 * (1 + math.Cos(math.Pi*done))
	case "linear":
		return 1 - done
	}
	return 1
}

// Tau is RCE's temperature over a phase.
type Tau schedule.TemperatureOptions

// at returns the temperature of a step (from 0) of total.
func (t Tau) at(step, total int) float64 {
	if t.Schedule == "constant" {
		return t.Start
	}
	done := 1.0
	if total > 1 {
		done = math.Min(1, float64(step)/float64(total-1))
	}
	switch t.Schedule {
	case "cosine":
		return t.End + (t.Start-t.End)*0.5*(1+math.Cos(math.Pi*done))
	case "exponential":
		return math.Exp((1-done)*math.Log(t.Start) + done*math.Log(t.End))
	}
	return (1-done)*t.Start + done*t.End
}

// ends returns the smallest and the largest temperature of the phase.
func (t Tau) ends() (smallest, largest float64) {
	if t.Schedule == "constant" {
		return t.Start, t.Start
	}
	return math.Min(t.Start, t.End), math.Max(t.Start, t.End)
}

// Imitation is what the options of imitation promise.
type Imitation struct {
	Best     bool // the best candidate alone counts
	Raw      bool // rewards are not normalised before the softmax
	Relative bool // τ counts in deviations of a group's rewards
	PerToken bool // the loss is a mean over scored steps, else over queries
}

// PolicyLoss is what GRPO's options promise.
type PolicyLoss struct {
	ClipLow, ClipHigh float64 // widths of the clip range below and above 1
	AdvantageClip     float64
	Centred           bool // the advantages of a whole group have mean 0 before the clip
	Curriculum        advantage.CurriculumOptions

	OldPolicy string // its name
	// OldIsFresh reports whether the old policy has the policy's weights at a step of the phase (from 0): the ratio is then 1.
	OldIsFresh func(e Limits, step int) bool

	Advantage     advantage.Options // no method: a program has its own
	PerToken      bool              // one ratio, and one KL, a token
	Mean          string            // the surrogate is a mean over candidates, over tokens, or divided by candidates and the longest length
	MaskTruncated bool              // truncated candidates count in the baseline and not in the loss

	SumOfParts     bool    // loss = ppo_loss + kl_loss - EntropyWeight · entropy
	EntropyWeight  float64 // of the bonus in the loss
	Surrogate      bool    // ppo_loss is minus the mean advantage of all candidates where the ratios are 1
	KLPerCandidate bool    // kl_loss = kl_beta · kl
	KL             KL
}

// KL is the penalty and its controller.
type KL struct {
	control.KLOptions      // Controller is fixed too where beta is 0 for good
	NonNegative       bool // the estimator cannot be below 0
}

// topK is how many of a group's candidates count in an epoch (from 1).
func (l Limits) topK(epoch int, size float64) float64 {
	switch c := l.Policy.Curriculum; {
	case epoch <= c.EarlyEpochs:
		return math.Min(size, float64(c.EarlyTopK))
	case c.LateTopK != nil:
		return math.Min(size, float64(*c.LateTopK))
	}
	return size
}

// rounding is how much further apart than in 32 bits the log-probabilities of equal weights may lie.
func (l Limits) rounding() float64 {
	if l.HalfPrecision {
		return 100
	}
	return 1
}

// oldIsFresh reports whether the ratio is 1 at a step of the phase (from 0).
func (l Limits) oldIsFresh(step int) bool { return l.Policy.OldIsFresh(l, step) }

// referenceIsFresh reports whether the reference policy has the policy's weights at a step of the phase
// (from 0): the KL is then 0.
func (l Limits) referenceIsFresh(step int) bool {
	kl := l.Policy.KL
	if n := kl.SyncSteps; n != nil && kl.SyncMix == 1 && step > 0 && step%*n == 0 {
		return true
	}
	switch kl.Reference {
	case "epoch_start":
		return step%l.StepsPerEpoch == 0
	case "init":
		return step == 0 && l.StartsAtInit
	}
	return step == 0
}
