package doctor

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
)

// Doctor watches one run. Make it with New; it is not safe for concurrent use.
type Doctor struct {
	checks []Check
	lim    Limits
	keep   int // values of a metric that the longest window needs
	state  state

	found  []Finding // of the row in hand
	scores []float64 // of the validation queries, one by one

	resumed bool // the next step is the first after a resume
}

// state is all that findings depend on besides checks and limits: a saved state holds it as JSON.
type state struct {
	Phase    string               `json:"phase"`
	Steps    int                  `json:"steps"`    // seen in this phase
	Said     map[string]Severity  `json:"said"`     // in this phase
	Away     bool                 `json:"away"`     // in this phase: the policy ran away from the old one or its reference
	Recent   map[string][]float64 `json:"recent"`   // newest values of the metrics that windows look at
	First    map[string]moments   `json:"first"`    // of the phase's first steps
	Streak   map[string]int       `json:"streak"`   // steps in a row with a condition
	Rounding map[string]float64   `json:"rounding"` // differences of equal weights, at the last refresh
	Moves    map[string]int       `json:"moves"`    // steps that moved the weights since a policy was refreshed
	Epochs   []epoch              `json:"epochs"`   // of this phase
	Initial  epoch                `json:"initial"`  // validation of the run's initial policy, and the best since

	Batch      uint64 `json:"batch"` // of the queries of the last batch, to recognise them
	BatchEpoch int    `json:"batch_epoch"`

	Order  uint64    `json:"order"`            // of the queries that this epoch has taken so far
	Before uint64    `json:"before"`           // of the epoch before, all of it
	Seen   int       `json:"seen"`             // queries taken in epoch SeenIn
	Sum    uint64    `json:"sum"`              // of their hashes: the same in whatever order
	SeenIn int       `json:"seen_in"`          // the epoch that Order, Seen and Sum count from its start; 0 = none
	Handed []float64 `json:"handed,omitempty"` // what validation queries earn under the policy that the phase starts from
	Early  bool      `json:"early,omitempty"`  // a rule of the run ended the phase before its last epoch

	Moment float64 `json:"moment"` // norm of the optimizer's first moment after the step before
}

type moments struct {
	N   int     `json:"n"`
	Sum float64 `json:"sum"`
}

func (m moments) mean() float64 { return m.Sum / float64(m.N) }

// epoch holds the numbers of an epoch that later epochs are compared with.
type epoch map[string]float64

// New returns a doctor that makes these checks and has seen nothing; without one it looks at nothing.
func New(checks []Check) *Doctor {
	d := &Doctor{checks: checks, keep: gradientHistory, state: state{Initial: epoch{}}}
	for _, c := range checks {
		d.keep = max(d.keep, c.Steps)
	}
	d.state.clear("")
	return d
}

func (s *state) clear(phase string) {
	*s = state{Phase: phase, Said: map[string]Severity{}, Recent: map[string][]float64{}, First: map[string]moments{},
		Streak: map[string]int{}, Moves: map[string]int{}, Rounding: map[string]float64{}, Initial: s.Initial, Handed: s.Handed}
}

// Start tells of the validation of the initial policy: the fields of an eval row, without prefix, and the
// standard error of its reward, or of its recorded reward.
func (d *Doctor) Start(eval map[string]any, rewardError float64) {
	d.state.Initial = epoch{"reward_error": finite(rewardError)}
	for _, name := range []string{"loss", "reward", "recorded_reward"} {
		if x, ok := (row{fields: eval}).number(name); ok {
			d.state.Initial["val_"+name] = x
		}
	}
}

func (d *Doctor) Begin(phase string, lim Limits) {
	lim.Passes, lim.StepsPerEpoch, lim.TotalSteps = max(lim.Passes, 1), max(lim.StepsPerEpoch, 1), max(lim.TotalSteps, 1)
	d.lim = lim
	d.state.clear(phase)
}

// Step looks at the row of an optimizer step: its epoch and its number in the phase, both from 1.
func (d *Doctor) Step(epoch, step int, fields map[string]any) []Finding {
	if len(d.checks) == 0 {
		return nil
	}
	r := row{fields, epoch, step - 1}
	d.state.Steps++
	d.remember(r)
	for _, c := range d.checks {
		if c.step != nil {
			c.step(d, c, r)
		}
	}
	d.moved(r)
	d.resumed = false
	return d.take()
}

func (d *Doctor) Epoch(number int, fields map[string]any) []Finding {
	if len(d.checks) == 0 {
		return nil
	}
	r := row{fields: fields, epoch: number}
	e := epochOf(r)
	d.gained(e)
	for _, c := range d.checks {
		if c.epoch != nil {
			c.epoch(d, c, r)
		}
	}
	d.state.Epochs = append(d.state.Epochs, e)
	return d.take()
}

// epochOf returns the numbers of an epoch's row that later epochs, and the end of the phase, ask for.
func epochOf(r row) epoch {
	e := epoch{}
	for _, name := range []string{"loss", "mean_reward", "advantage_gain", "val_loss", "val_reward", "val_recorded_reward", "val_kl", "kl",
		"clip_fraction", "signal_share"} {
		if x, ok := r.number(name); ok {
			e[name] = x
		}
	}
	return e
}

func (d *Doctor) take() []Finding {
	found := d.found
	d.found = nil
	return found
}

// State returns what a resumed run needs to give the same findings.
func (d *Doctor) State() json.RawMessage {
	text, err := json.Marshal(d.state)
	if err != nil {
		panic(err) // finite numbers and text always marshal
	}
	return text
}

// Restore sets a state that State returned, after Begin of the same phase.
func (d *Doctor) Restore(saved json.RawMessage) error {
	s := d.state
	if err := jsonwords.Unmarshal(saved, &s); err != nil {
		return fmt.Errorf("doctor: saved state: %w", err)
	}
	if s.Phase != d.state.Phase {
		return fmt.Errorf("doctor: saved state: it is of phase %q, want %q", s.Phase, d.state.Phase)
	}
	d.state, d.resumed = s, s.Steps > 0
	return nil
}

// say adds a finding, unless its check is off or has said as much in this phase already. key may be KEY=VALUE.
func (d *Doctor) say(c Check, key string, value, limit float64, format string, args ...any) {
	if !c.Severity.WorseThan(d.state.Said[c.Name]) {
		return
	}
	d.state.Said[c.Name] = c.Severity
	set := ""
	if name, _, typed := strings.Cut(key, "="); typed {
		key, set = name, key
	}
	d.found = append(d.found, Finding{Check: c.Name, Severity: c.Severity, Message: fmt.Sprintf(format, args...), Key: key, Set: set,
		Value: finite(value), Limit: limit})
}

// runsAway notes that the policy left the old one or its reference because its steps are too long, and returns what to type: a tenth of
// the learning rate.
func (d *Doctor) runsAway() string {
	d.state.Away = true
	if d.lim.LR == 0 {
		return d.key("lr")
	}
	return d.key("lr") + "=" + strconv.FormatFloat(d.lim.LR/10, 'g', 3, 64)
}

// orRate is the key to change: the learning rate where the policy ran away, which is then the cause of more than one finding.
func (d *Doctor) orRate(key string) string {
	if d.state.Away {
		return d.runsAway()
	}
	return key
}

// finite keeps a finding's number one that a state can hold.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

func (d *Doctor) key(name string) string { return d.state.Phase + "." + name }

// row is one row and where it stands.
type row struct {
	fields map[string]any
	epoch  int // from 1
	step   int // of the phase, from 0
}

// number returns a finite number of the row.
func (r row) number(name string) (float64, bool) {
	var x float64
	switch v := r.fields[name].(type) {
	case float64:
		x = v
	case int:
		x = float64(v)
	default:
		return 0, false
	}
	return x, !math.IsNaN(x) && !math.IsInf(x, 0)
}

// get returns several numbers, ok where the row has them all.
func (r row) get(names ...string) (x [4]float64, ok bool) {
	for i, name := range names {
		if x[i], ok = r.number(name); !ok {
			return x, false
		}
	}
	return x, true
}

// firstSteps is how many steps say how a phase began.
const firstSteps = 10

// remembered are the metrics that windows look at. Shares of groups are counted from their number.
var remembered = []string{"signal_share", "ess_share", "effective_sample_size", "score_spread", "clip_fraction", "clamp_fraction", "kl",
	"entropy",
	"truncated_share", "completion_length", "kept_mass", "correction_share", "grad_norm", "loss", "mean_reward", "advantage_gain"}

func (d *Doctor) remember(r row) {
	for _, name := range remembered {
		if x, ok := r.number(name); ok {
			d.add(name, x)
		}
	}
	if x, ok := r.number("advantage_gain"); ok && compares(r) {
		d.add("objective_gain", x)
	}
	if groups, ok := r.number("groups"); ok && groups > 0 {
		for _, name := range []string{"constant_good_groups", "constant_bad_groups"} {
			if x, ok := r.number(name); ok {
				d.add(name, x/groups)
			}
		}
	}
}

// fewGroups is how many groups of a step tell a rise of good candidates from the noise of a step on others.
const fewGroups = 4

// compares reports whether advantage_gain says something of a step. Where a curriculum keeps the best of each group,
// all advantages are good ones: what a step on one query takes from all candidates of the next looks like a fall then, and
// at batch size 1 goes on for tens of steps.
func compares(r row) bool {
	x, ok := r.get("top_k", "group_size", "groups")
	return !ok || x[0] >= x[1] || x[2] >= fewGroups
}

func (d *Doctor) add(name string, x float64) {
	s := append(d.state.Recent[name], x)
	if len(s) > d.keep {
		s = slices.Delete(s, 0, len(s)-d.keep)
	}
	d.state.Recent[name] = s
	if f := d.state.First[name]; f.N < firstSteps {
		d.state.First[name] = moments{f.N + 1, f.Sum + x}
	}
}

// recent returns the newest values of a metric that a window looks at; ok is false until there are as many
// as it asks for. A phase that is shorter is judged at its end.
func (d *Doctor) recent(name string, c Check) (values []float64, ok bool) {
	n, all := min(c.Steps, d.lim.TotalSteps), d.state.Recent[name]
	if len(all) < n {
		return nil, false
	}
	return all[len(all)-n:], true
}

// soon is a window that ends with the phase's first epoch where that is shorter, but for very short ones: what is far beyond its limit is
// said before a second epoch is spent on it.
func (d *Doctor) soon(c Check) Check {
	const few = 5
	c.Steps = min(c.Steps, max(d.lim.StepsPerEpoch, few))
	return c
}

func (d *Doctor) mean(name string, c Check) (mean float64, ok bool) {
	values, ok := d.recent(name, c)
	return list.Sum(values, func(x float64) float64 { return x / float64(len(values)) }), ok
}

// streak counts the steps in a row in which a condition holds and reports whether there are as many as that.
func (d *Doctor) streak(check string, holds bool, steps int) bool {
	if !holds {
		delete(d.state.Streak, check)
		return false
	}
	d.state.Streak[check]++
	return d.state.Streak[check] >= steps
}

// moved counts the steps that moved the weights away from those of the old and of the reference policy.
func (d *Doctor) moved(r row) {
	x, ok := r.get("lr", "grad_norm")
	if !ok || d.lim.Policy == nil {
		return
	}
	for name, fresh := range map[string]bool{"old": d.lim.oldIsFresh(r.step), "reference": d.lim.referenceIsFresh(r.step)} {
		if fresh {
			d.state.Moves[name] = 0
		}
		if x[0] > 0 && x[1] > smallGradient {
			d.state.Moves[name]++
		}
	}
}

// smallGradient is a gradient norm up to which rounding alone may hold the weights still.
const smallGradient = 1e-6
