package preflight

import (
	"math"
	"slices"
	"testing"

	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/grpo"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// wave is a number between -1 and 1 that looks random and is not.
func wave(i, salt int) float64 { return math.Sin(float64(i*i)*1.7 + float64(salt)*2.3) }

// TestEmbeddings: a table is named only where pairs and rewards both say nothing: it stops the run from 200 queries on, and is told from
// fewer, of which there are more where nothing but recorded candidates speaks.
func TestEmbeddings(t *testing.T) {
	for _, tc := range []struct {
		name        string
		queries     int
		pairs, gain float64
		scored      bool
		want        doctor.Severity
	}{
		{"a table that says nothing", 400, 0, 0, false, doctor.Stop},
		{"few queries", 190, 0, 0, false, doctor.Warning},
		{"fewer queries, scored", 60, 0, 0, true, doctor.Warning},
		{"fewer queries, recorded", 60, 0, 0, false, ""},
		{"too few queries", 59, 0, 0, true, ""},
		{"pairs in order", 400, 0.06, 0, false, ""},
		{"similar examples that earn more, as beams of the most similar ones have", 400, 0, 0.03, false, ""},
		{"pairs in the other order", 400, -0.06, 0, false, ""},
	} {
		s := Similarity{Name: "rce", Scored: tc.scored}
		for q := range tc.queries {
			s.Pairs = append(s.Pairs, 0.5+tc.pairs+0.3*wave(q, 1))
			s.Random = append(s.Random, 0.2+0.1*wave(q, 2))
			s.Similar = append(s.Similar, 0.2+0.1*wave(q, 2)+tc.gain+0.1*wave(q, 3))
		}
		report := New(Checks(), 1)
		report.Embeddings(s)
		var got doctor.Severity
		for _, f := range report.Findings() {
			got = f.Severity
		}
		if got != tc.want {
			t.Errorf("%s: %+v, want %q", tc.name, report.Findings(), tc.want)
		}
	}
}

// TestAlone: a number that is the reward, in whatever sign and with some noise, is named; so is one that finds the best candidate alone.
// One that says something is not.
func TestAlone(t *testing.T) {
	for _, tc := range []struct {
		name string
		of   func(reward, noise float64) float64
		want int
	}{
		{"noise", func(_, noise float64) float64 { return noise }, 0},
		{"some use", func(reward, noise float64) float64 { return reward + 2*noise }, 0},
		{"the reward", func(reward, noise float64) float64 { return reward + 0.05*noise }, 1},
		{"minus the reward", func(reward, noise float64) float64 { return -reward }, 1},
		{"the right answer", func(reward, noise float64) float64 { return math.Floor(reward + 0.1) }, 1},
	} {
		in := Input{Name: "feature"}
		for q := range 64 {
			var values, rewards []float64
			for g := range 20 {
				reward := math.Abs(wave(100*q+g, 4)) / 2
				if g == q%20 {
					reward = 1
				}
				values, rewards = append(values, tc.of(reward, wave(100*q+g, 5))), append(rewards, reward)
			}
			in.Add(values, rewards)
		}
		report := New(Checks(), 1)
		if report.Alone(in); len(report.Findings()) != tc.want {
			t.Errorf("%s: %+v, want %d", tc.name, report.Findings(), tc.want)
		}
	}
}

// promised is a phase that says what another one's rows look like.
type promised struct {
	*mutant
	lim doctor.Limits
}

func (p promised) Expected() doctor.Limits { return p.lim }

// hooked trains a stage of the rig with a part of its own, and promises the rows of the stage without it.
func (r *rig) hooked(stage int, change func()) {
	build := r.stages[stage].Build
	honest, err := build(r.stages[stage].Source)
	if err != nil {
		panic(err)
	}
	lim := honest.(phases.Expecter).Expected()
	change()
	r.stages[stage].Build = func(src selector.Source) (phases.Phase, error) {
		p, err := build(src)
		as := func(_ *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) { return run() }
		return promised{&mutant{Phase: p, step: as}, lim}, err
	}
}

// advantages gives the online stage advantages of its own, out of those of whole groups [B*G].
func (r *rig) advantages(change func(b *selector.Batch, o *advantage.Options, k int) (advantage.Selection, []float64)) {
	r.hooked(2, func() {
		r.online.Hooks.Advantages = func(b *selector.Batch, o grpo.Options, epoch int) (advantage.Selection, []float64, advantage.Stats) {
			sel, adv := change(b, &o.Advantage, o.Curriculum.TopK(epoch, b.G))
			_, stats := advantage.Compute(adv, sel.Valid, sel.B, sel.K, advantage.Options{Method: "none", Clip: math.Inf(1)})
			return sel, adv, stats
		}
	})
}

// copying is a policy half of whose samples are copies of the other half.
type copying struct{ *pointer.Policy }

func (c copying) Sample(src selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	b := c.Policy.Sample(src, queries, g, t, temperature, seed)
	for i := range b.B() {
		half := g / 2 * b.T
		at := i * g * b.T
		copy(b.Actions[at+half:at+2*half], b.Actions[at:at+half])
	}
	return b
}

func (c copying) Clone() selector.Policy { return copying{c.Policy.Clone().(*pointer.Policy)} }

// TestComputedAgain: what the first step reports is held against the formulas, and not against the code that made it.
func TestComputedAgain(t *testing.T) {
	all := func(b *selector.Batch, o advantage.Options) (advantage.Selection, []float64) {
		adv, _ := advantage.Compute(b.Rewards, b.Valid, b.B(), b.G, o)
		return advantage.TopK(b.Rewards, b.Valid, b.B(), b.G, 0), adv
	}
	scaled := func(stage int, name string, factor float64) func(r *rig) {
		return func(r *rig) {
			r.mutate(stage, func(_ *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
				m, err := run()
				if x, ok := m[name].(float64); ok {
					m[name] = factor * x
				}
				return m, err
			})
		}
	}
	for _, tc := range []struct {
		name  string
		plant func(r *rig)
		want  string
	}{
		{"nothing", func(r *rig) {
			r.advantages(func(b *selector.Batch, o *advantage.Options, _ int) (advantage.Selection, []float64) {
				return all(b, *o)
			})
		}, ""},
		{"KL halved", scaled(2, "kl", 0.5), "grpo_online kl_differs"},
		{"advantages normalised twice", func(r *rig) {
			r.advantages(func(b *selector.Batch, o *advantage.Options, _ int) (advantage.Selection, []float64) {
				sel, adv := all(b, *o)
				adv, _ = advantage.Compute(adv, b.Valid, b.B(), b.G, *o)
				return sel, adv
			})
		}, "grpo_online advantages_differ"},
		{"min_std ignored", func(r *rig) {
			r.advantages(func(b *selector.Batch, o *advantage.Options, _ int) (advantage.Selection, []float64) {
				o.MinStd = 0
				return all(b, *o)
			})
		}, "grpo_online advantages_differ"},
		{"the worst three", func(r *rig) {
			r.online.Curriculum.EarlyEpochs = 1
			r.advantages(func(b *selector.Batch, o *advantage.Options, k int) (advantage.Selection, []float64) {
				_, adv := all(b, *o)
				turned := make([]float64, len(adv))
				for i, a := range adv {
					turned[i] = -a
				}
				sel := advantage.TopK(turned, b.Valid, b.B(), b.G, k)
				return sel, sel.Take(adv)
			})
		}, "grpo_online advantages_differ"},
		{"a loss divided by two", scaled(0, "loss", 0.5), "rce loss_differs"},
		{"weights of the next query", func(r *rig) {
			r.hooked(0, func() {
				neighbours := func(b *selector.Batch, tau float64) ([]float64, group.WeightStats) {
					w, stats := group.Weights(b.Rewards, b.Valid, b.B(), b.G, tau, false)
					return append(w[b.G:len(w):len(w)], w[:b.G]...), stats
				}
				r.imitation.Weights = neighbours
				r.stages[0].Credit = func(b *selector.Batch, tau float64) []float64 { // as if package rewardutil gave them
					w, _ := neighbours(b, tau)
					return w
				}
			})
		}, "rce loss_differs"},
		{"copies among samples", func(r *rig) { r.trial.Policy = copying{r.trial.Policy.(*pointer.Policy)} }, "grpo_online samples_repeat"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			tc.plant(r)
			found := r.found(t)
			if named := slices.ContainsFunc(found, func(f Finding) bool { return f.Phase+" "+f.Check == tc.want }); named != (tc.want != "") ||
				tc.want == "" && len(found) > 0 {
				t.Errorf("want %q, found %+v", tc.want, found)
			}
		})
	}
}

// TestLengths: the surrogate of candidates of different lengths is a mean over candidates or over tokens, as the loss says.
func TestLengths(t *testing.T) {
	b := selector.NewBatch(nil, []int{0}, 2, 4)
	b.Set(0, 0, []int64{1}, 1)
	b.Set(0, 1, []int64{1, 2, 3, 4}, 0)
	of := doctor.PolicyLoss{Advantage: advantage.DefaultOptions()} // advantages ±0.707
	of.Advantage.Method = "mean_only"                              // ±0.5
	for _, tc := range []struct {
		mean string
		loss float64
		want int
	}{
		{"candidates", 0, 0}, {"candidates", 0.3, 1}, // 1.5 / 5: divided by tokens
		{"tokens", 0.3, 0}, {"tokens", 0.75, 1},
		{"longest", 1.5 / 8, 0}, {"longest", 0.3, 1},
	} {
		of.Mean = tc.mean
		p := &probe{Report: New(Checks(), 1), Stage: Stage{Name: "grpo"}}
		p.comparedAgain(phases.Metrics{"items": 2, "mean_advantage": 0.0, "std_advantage": math.Sqrt(0.5), "max_advantage": 0.5,
			"ppo_loss": tc.loss}, b, of)
		if found := p.Findings(); len(found) != tc.want || tc.want > 0 && found[0].Check != "loss_differs" {
			t.Errorf("%s, %g: %+v, want %d", tc.mean, tc.loss, found, tc.want)
		}
	}
}
