package phases

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/stat"
)

// CheckpointOptions configures what is saved and which checkpoint is best (config section checkpoint).
type CheckpointOptions struct {
	// epochs between checkpoints; the last of a phase is saved
	EveryEpochs int `koanf:"every_epochs" range:"[1,inf)"`
	// optimizer steps between states within an epoch; null = on interruption
	EverySteps *int `koanf:"every_steps" range:"[1,inf)" also:"save_steps"`
	// newest weights kept beside best; null = all
	Keep *int `koanf:"keep" range:"[1,inf)" also:"save_total_limit"`
	// newest states kept beside best's; null = all
	KeepStates *int `koanf:"keep_states" range:"[1,inf)"`
	// a resume at a damaged state stops, or goes on from the last whole one (previous)
	OnDamage string `koanf:"on_damage" enum:"stop,previous"`
	// which checkpoint best.safetensors points at
	Best BestOptions `koanf:"best"`
	// end a phase after so many epochs without a better one; null = never
	PatienceEpochs *int `koanf:"patience_epochs" range:"[1,inf)" also:"early_stopping_patience,patience"`
	// a phase hands its best epoch (by best.metric), not its last, to the next
	RestoreBest bool `koanf:"restore_best" also:"load_best_model_at_end"`
	// pt: the Python reference's own files (rce_epoch1.pt, …) too
	Format string `koanf:"format" enum:"safetensors,pt"`
}

// BestOptions configures the metric that chooses the best checkpoint.
type BestOptions struct {
	// metric of an epoch row: the best is the latest within one paired standard error of the highest; null, reward = val_reward
	// where selections can be scored, else val_recorded_reward, else val_loss
	Metric *string `koanf:"metric" enum:"reward,val_loss,val_reward,val_accuracy,val_recorded_reward,val_kl,val_advantage" also:"metric_for_best_model"`
	// max or min; null = max, or min for losses and val_kl
	Mode *string `koanf:"mode" enum:"max,min" when:"!metric=reward|null"`
	// only checkpoints with val_kl up to this qualify, in nats per sequence; null = no bound
	KLMax *float64 `koanf:"kl_max" range:"[0,inf)"`

	// Highest chooses the highest, the earlier one on ties, whatever the noise, and by default val_reward or else val_loss. A
	// program that reproduces another implementation sets it, no user does.
	Highest bool `koanf:"-"`
}

// DefaultCheckpointOptions saves every epoch and keeps all weights. A state is twice as large as the weights and serves a resume alone.
func DefaultCheckpointOptions() CheckpointOptions {
	return CheckpointOptions{EveryEpochs: 1, KeepStates: new(2), OnDamage: "stop", Format: "safetensors"}
}

// Validate checks the pair of metric and mode, and refuses a rule by which the initial policy always wins.
func (o BestOptions) Validate() error {
	if o.Mode != nil && o.Metric == nil {
		return option.Errorf("mode", "want best.metric as well")
	}
	if o.Metric != nil && *o.Metric == "val_kl" && (o.Mode == nil || *o.Mode == "min") {
		return option.Errorf("metric", "val_kl is 0 for the initial policy, which would always be best: "+
			"want val_reward or val_loss, with best.kl_max=0.1 to bound the KL")
	}
	return nil
}

// bestCandidate is an epoch that competes for best; the initial policy is epoch 0 of phase init.
type bestCandidate struct {
	Phase string `json:"phase"`
	Epoch int    `json:"epoch"`
	File  string `json:"file"`
	Value number `json:"value"` // NaN never wins
	KL    number `json:"kl"`
	Loss  number `json:"loss"`  // val_loss
	Saved bool   `json:"saved"` // it has a checkpoint (not every epoch has one with every_epochs > 1)
	// Noise is the paired standard error of its difference from the highest candidate before it; 0 = not known, or no question
	// differs. PhaseNoise is that from the highest saved one of its phase.
	Noise      number `json:"noise"`
	PhaseNoise number `json:"phase_noise"`
	NoKL       bool   `json:"no_kl,omitempty"` // KL was not measured (grpo.kl.measure_every=0)
}

// InitialCheckpoint is the file of the policy that a run began with.
const InitialCheckpoint = "init_epoch0.safetensors"

// best is the winner among candidates: the latest one within one standard error of the highest.
type best struct {
	Candidate bestCandidate `json:"candidate"`
	Highest   bestCandidate `json:"highest"`
	Qualified bool          `json:"qualified"` // within kl_max
}

// rule decides between candidates.
type rule struct {
	metric  string
	sign    number // +1 = larger is better
	klMax   number
	highest bool // whatever the noise
}

// newRule returns the rule by a metric that metricOf has resolved.
func newRule(o BestOptions, metric string) rule {
	r := rule{metric: metric, sign: 1, klMax: number(math.Inf(1)), highest: o.Highest}
	if metric == "val_loss" || metric == "val_kl" {
		r.sign = -1
	}
	if o.Mode != nil {
		r.sign = 1
		if *o.Mode == "min" {
			r.sign = -1
		}
	}
	if o.KLMax != nil {
		r.klMax = number(*o.KLMax)
	}
	return r
}

// metricOf resolves the default and the metric reward by what the initial policy's validation gives.
func metricOf(o BestOptions, canScore bool, initial Metrics) string {
	_, recorded := initial["val_recorded_reward"]
	switch {
	case o.Metric != nil && *o.Metric != "reward":
		return *o.Metric
	case canScore:
		return "val_reward"
	case recorded && (o.Metric != nil || !o.Highest):
		return "val_recorded_reward"
	}
	return "val_loss"
}

// choose goes over the candidates in order of time: the latest value within kl_max and within one standard error of the highest wins; if
// none is within kl_max, the lowest KL. Of candidates that score the same on every question the one of the earlier phase is the
// highest, and within a phase that of the lowest val_loss: while no epoch earns a reward yet, training goes on from the epoch that
// has learnt most.
func (r rule) choose(history []bestCandidate) best {
	var b best
	for i, c := range history {
		ok, top := r.within(c), b.Highest
		switch {
		case i == 0, ok && !b.Qualified:
		case ok && (r.sign*c.Value > r.sign*top.Value || math.IsNaN(float64(top.Value)) && !math.IsNaN(float64(c.Value))):
		case ok && c.Phase == top.Phase && c.Value == top.Value && c.Loss < top.Loss:
		case !ok && !b.Qualified && c.KL < top.KL:
		case ok && !r.highest && c.Noise > 0 && r.sign*(top.Value-c.Value) <= c.Noise:
			b.Candidate = c
			continue
		default:
			continue
		}
		b = best{Candidate: c, Highest: c, Qualified: ok}
	}
	return b
}

// pairedError returns the standard error of the mean difference of two policies' scores, query by query; 0 where it is not known.
func pairedError(a, b []float64) number {
	if len(a) != len(b) || len(a) < 2 {
		return 0
	}
	if se := standardError(stat.Less(a, b)); !math.IsNaN(se) && !math.IsInf(se, 0) {
		return number(se)
	}
	return 0
}

// within reports whether a candidate qualifies. A phase that measures no KL is refused a bound on it.
func (r rule) within(c bestCandidate) bool { return c.NoKL || c.KL <= r.klMax }

// reason says in a sentence why the best is not the highest; "" where it is.
func (r rule) reason(b best) string {
	top, c := b.Highest, b.Candidate
	if c.File == top.File || top.File == "" {
		return ""
	}
	what := "highest"
	if r.sign < 0 {
		what = "lowest"
	}
	where := fmt.Sprintf("%s epoch %d", top.Phase, top.Epoch)
	if top.Epoch == 0 {
		where = "the initial policy"
	}
	return fmt.Sprintf("it is the latest checkpoint within one paired standard error of the %s: %s has %.4g, it %.4g, a difference of "+
		"%.2g ± %.2g", what, where, top.Value, c.Value, math.Abs(float64(top.Value-c.Value)), c.Noise)
}

// ofPhase returns the best saved epoch of one phase, as choose finds it.
func (r rule) ofPhase(history []bestCandidate, phase string) best {
	var own []bestCandidate
	for _, c := range history {
		if c.Phase == phase && c.Saved {
			c.Noise = c.PhaseNoise
			own = append(own, c)
		}
	}
	return r.choose(own)
}

// outside returns the trained candidate with the lowest KL if no candidate is within kl_max. The initial policy,
// whose KL is 0, is then best.
func (r rule) outside(history []bestCandidate) (nearest bestCandidate, none bool) {
	for _, c := range history {
		switch {
		case c.Epoch == 0:
		case r.within(c):
			return c, false
		case !none || c.KL < nearest.KL:
			nearest, none = c, true
		}
	}
	return nearest, none
}

// nearest returns the highest trained candidate within kl_max; false: no candidate is.
func (r rule) nearest(history []bestCandidate) (bestCandidate, bool) {
	trained := list.Filter(history, func(c bestCandidate) bool { return c.Epoch > 0 && r.within(c) })
	return r.choose(trained).Highest, len(trained) > 0
}

// stale returns how many epochs of the named phase have passed since the highest.
func (b best) stale(history []bestCandidate, phase string) int {
	n := 0
	for i := len(history) - 1; i >= 0 && history[i].Phase == phase && history[i].File != b.Highest.File; i-- {
		n++
	}
	return n
}

// value returns the deciding metric of an epoch.
func (r rule) value(m Metrics) (float64, error) {
	v, ok := m[r.metric].(float64)
	if !ok {
		return 0, &MetricError{r.metric, slices.Sorted(maps.Keys(m))}
	}
	return v, nil
}

// MetricError reports a deciding metric that the run's data do not give.
type MetricError struct {
	Metric string
	Known  []string
}

func (e *MetricError) Error() string {
	return fmt.Sprintf("checkpoint.best.metric=%s: the validation queries do not give it, only %s", e.Metric, strings.Join(e.Known, ", "))
}

// initialStays returns the reason why best is the initial policy; nearest is the best trained epoch.
func initialStays(metric string, initial, nearest bestCandidate) string {
	if nearest.Value == initial.Value {
		return fmt.Sprintf("best is the initial policy: no epoch is better, %s epoch %d has the same %s of %.4g", nearest.Phase, nearest.Epoch,
			metric, initial.Value)
	}
	return fmt.Sprintf("best is the initial policy: it has %s %.4g, and the best epoch, %s epoch %d, %.4g", metric, initial.Value,
		nearest.Phase, nearest.Epoch, nearest.Value)
}
