package phases

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// No epoch is called the best where none is better than the initial policy, but as good.
func TestInitialStays(t *testing.T) {
	initial := bestCandidate{Phase: "init", Value: 0.5}
	for _, tc := range []struct {
		value number
		want  string
	}{
		{0.5, "best is the initial policy: no epoch is better, rce epoch 2 has the same val_reward of 0.5"},
		{0.4, "best is the initial policy: it has val_reward 0.5, and the best epoch, rce epoch 2, 0.4"},
	} {
		if got := initialStays("val_reward", initial, bestCandidate{Phase: "rce", Epoch: 2, Value: tc.value}); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// ruleOf is the rule where no recorded candidate can be judged.
func ruleOf(o BestOptions, canScore bool) rule { return newRule(o, metricOf(o, canScore, nil)) }

// The default is the reward that is known: of selections, else of recorded candidates, else the loss. The reference's was
// never that of recorded candidates.
func TestDefaultMetric(t *testing.T) {
	judged := Metrics{"val_loss": 1.0, "val_recorded_reward": 0.5}
	for _, tc := range []struct {
		opt      BestOptions
		canScore bool
		initial  Metrics
		want     string
	}{
		{BestOptions{}, true, judged, "val_reward"},
		{BestOptions{}, false, judged, "val_recorded_reward"},
		{BestOptions{}, false, Metrics{"val_loss": 1.0}, "val_loss"},
		{BestOptions{Metric: new("reward")}, true, judged, "val_reward"},
		{BestOptions{Metric: new("reward")}, false, judged, "val_recorded_reward"},
		{BestOptions{Metric: new("val_loss")}, true, judged, "val_loss"},
		{BestOptions{Highest: true}, true, judged, "val_reward"},
		{BestOptions{Highest: true}, false, judged, "val_loss"},
	} {
		got := newRule(tc.opt, metricOf(tc.opt, tc.canScore, tc.initial))
		if got.metric != tc.want || (got.sign < 0) != (tc.want == "val_loss") {
			t.Errorf("%+v, selections scored: %v, initial policy %v: %s, sign %v; want %s", tc.opt, tc.canScore, tc.initial, got.metric,
				got.sign, tc.want)
		}
	}
}

// The best is the latest within one paired standard error of the highest; the reference's is the highest.
func TestBestWithinNoise(t *testing.T) {
	at := func(phase string, epoch int, value, noise number) bestCandidate {
		return bestCandidate{Phase: phase, Epoch: epoch, File: fmt.Sprint(phase, epoch), Value: value, Noise: noise}
	}
	lead := []bestCandidate{at("init", 0, 0.5, 0), at("rce", 1, 0.9, 0.1), at("rce", 2, 0.89, 0.02), at("grpo", 1, 0.86, 0.02)}
	for _, tc := range []struct {
		name                 string
		opt                  BestOptions
		history              []bestCandidate
		want, highest, phase string
	}{
		{"a later one within the noise", BestOptions{}, lead, "rce2", "rce1", "rce2"},
		{"the highest of all, for the reference", BestOptions{Highest: true}, lead, "rce1", "rce1", "rce1"},
		{"the latest of several, after a worse one", BestOptions{}, append(slices.Clone(lead), at("grpo", 2, 0.85, 0.06)), "grpo2", "rce1",
			"rce2"},
		{"a new highest", BestOptions{}, append(slices.Clone(lead), at("grpo", 2, 0.91, 0.01)), "grpo2", "grpo2", "rce2"},
		{"exactly one standard error", BestOptions{}, append(slices.Clone(lead[:2]), at("rce", 2, 0.75, 0.15000001)), "rce2", "rce1", "rce2"},
		{"noise not known, or no question differs", BestOptions{}, append(slices.Clone(lead[:2]), at("rce", 2, 0.9, 0)), "rce1", "rce1", "rce1"},
		{"the initial policy leads by noise", BestOptions{}, []bestCandidate{at("init", 0, 0.5, 0), at("rce", 1, 0.49, 0.02)}, "rce1", "init0",
			"rce1"},
		{"outside kl_max nothing counts", BestOptions{KLMax: new(1.0)}, append(slices.Clone(lead[:2]),
			bestCandidate{Phase: "rce", Epoch: 2, File: "rce2", Value: 0.9, KL: 2, Noise: 0.1}), "rce1", "rce1", "rce1"},
		{"losses", BestOptions{Metric: new("val_loss")}, []bestCandidate{at("init", 0, 3, 0), at("rce", 1, 2, 0.1), at("rce", 2, 2.05, 0.1),
			at("rce", 3, 2.2, 0.1)}, "rce2", "rce1", "rce2"},
	} {
		r := ruleOf(tc.opt, true)
		b := r.choose(tc.history)
		if b.Candidate.File != tc.want || b.Highest.File != tc.highest {
			t.Errorf("%s: best %s, highest %s; want %s, %s", tc.name, b.Candidate.File, b.Highest.File, tc.want, tc.highest)
		}
		if said := r.reason(b); (said == "") != (tc.want == tc.highest) {
			t.Errorf("%s: %q", tc.name, said)
		}
		own := slices.Clone(tc.history)
		for i := range own {
			own[i].Saved, own[i].PhaseNoise, own[i].Noise = true, own[i].Noise, 0
		}
		if b := r.ofPhase(own, "rce"); b.Candidate.File != tc.phase && tc.opt.KLMax == nil {
			t.Errorf("%s: rce hands on %s, want %s", tc.name, b.Candidate.File, tc.phase)
		}
	}
	r := ruleOf(BestOptions{}, true)
	if n := r.choose(lead).stale(lead[:3], "rce"); n != 1 {
		t.Errorf("patience has waited %d epochs, want 1: what is within the noise is no improvement", n)
	}
	want := "it is the latest checkpoint within one paired standard error of the highest: rce epoch 1 has 0.9, it 0.89, a difference of " +
		"0.01 ± 0.02"
	if got := r.reason(r.choose(lead)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The error is that of the differences: two policies that differ alike on every question have none.
func TestPairedError(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b []float64
		want number
	}{
		{"differences 1, 0, 2", []float64{3, 5, 7}, []float64{2, 5, 5}, number(math.Sqrt(1.0 / 3))},
		{"the same difference everywhere", []float64{1, 2, 3}, []float64{0, 1, 2}, 0},
		{"no scores", []float64{1, 2, 3}, nil, 0},
		{"one question", []float64{1}, []float64{2}, 0},
		{"a NaN", []float64{1, math.NaN()}, []float64{1, 1}, 0},
	} {
		if got := pairedError(tc.a, tc.b); math.Abs(float64(got-tc.want)) > 1e-15 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestBest(t *testing.T) {
	h := []bestCandidate{
		{"init", 0, "init", 0.5, 0, 0, true, 0, 0, false}, {"rce", 1, "a", 0.7, 0.2, 0, true, 0, 0, false},
		{"rce", 2, "b", 0.9, 2, 0, true, 0, 0, false}, {"grpo", 1, "c", 0.7, 0.1, 0, true, 0, 0, false},
		{"grpo", 2, "d", 0.6, 0.1, 0, true, 0, 0, false},
	}
	for _, tc := range []struct {
		name      string
		opt       BestOptions
		canScore  bool
		history   []bestCandidate
		want      string
		qualified bool
	}{
		{"largest reward by default", BestOptions{}, true, h, "b", true},
		{"smallest loss where nothing scores", BestOptions{}, false, h, "init", true},
		{"kl_max excludes, ties go to the earlier", BestOptions{KLMax: new(1.0)}, true, h, "a", true},
		{"none qualifies: lowest KL", BestOptions{KLMax: new(0.05)}, true, h[1:], "c", false},
		{"NaN never wins, nor stays", BestOptions{}, true, []bestCandidate{{Phase: "init", File: "init", Value: number(math.NaN())},
			{Phase: "rce", Epoch: 1, File: "a", Value: 0.1, KL: 1},
			{Phase: "rce", Epoch: 2, File: "b", Value: number(math.NaN()), KL: 1}}, "a", true},
		{"an epoch without a KL qualifies", BestOptions{}, true, []bestCandidate{{Phase: "init", File: "init", Value: 0.5},
			{Phase: "grpo", File: "a", Value: 0.6, KL: number(math.NaN()), NoKL: true}}, "a", true},
		{"one whose KL is NaN does not", BestOptions{}, true, []bestCandidate{{Phase: "init", File: "init", Value: 0.5},
			{Phase: "grpo", File: "a", Value: 0.6, KL: number(math.NaN())}}, "init", true},
		{"ties within a phase go to the lowest loss", BestOptions{}, true, []bestCandidate{{Phase: "sft", File: "a", Loss: 3},
			{Phase: "sft", File: "b", Loss: 2}, {Phase: "sft", File: "c", Loss: 2}, {Phase: "grpo", File: "d", Loss: 1}}, "b", true},
		{"mode min", BestOptions{Metric: new("val_reward"), Mode: new("min")}, true, h, "init", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := ruleOf(tc.opt, tc.canScore).choose(tc.history)
			if b.Candidate.File != tc.want || b.Qualified != tc.qualified {
				t.Errorf("best %s (qualified %v), want %s (%v)", b.Candidate.File, b.Qualified, tc.want, tc.qualified)
			}
		})
	}
	for _, tc := range []struct {
		klMax   *float64
		nearest string
		none    bool
	}{{nil, "a", false}, {new(0.2), "a", false}, {new(0.05), "c", true}} {
		if nearest, none := ruleOf(BestOptions{KLMax: tc.klMax}, true).outside(h); nearest.File != tc.nearest || none != tc.none {
			t.Errorf("kl_max %v: nearest trained candidate %s, outside %v; want %s, %v", tc.klMax, nearest.File, none, tc.nearest, tc.none)
		}
	}
	if n := ruleOf(BestOptions{KLMax: new(1.0)}, true).choose(h).stale(h, "grpo"); n != 2 {
		t.Errorf("%d epochs of grpo without a better one, want 2", n)
	}
}

// TestBestOptions: a rule that the initial policy wins whatever is trained is refused, by what to set instead.
func TestBestOptions(t *testing.T) {
	for _, tc := range []struct {
		name string
		opt  BestOptions
		ok   bool
	}{
		{"the defaults", BestOptions{}, true},
		{"val_kl", BestOptions{Metric: new("val_kl")}, false},
		{"val_kl, the least", BestOptions{Metric: new("val_kl"), Mode: new("min")}, false},
		{"a bound changes nothing: 0 is below it", BestOptions{Metric: new("val_kl"), KLMax: new(0.1)}, false},
		{"the largest val_kl within a bound", BestOptions{Metric: new("val_kl"), Mode: new("max"), KLMax: new(0.1)}, true},
		{"val_reward within a bound", BestOptions{Metric: new("val_reward"), KLMax: new(0.1)}, true},
		{"a mode of no metric", BestOptions{Mode: new("max")}, false},
	} {
		err := tc.opt.Validate()
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.opt.Metric != nil && err != nil && !strings.Contains(err.Error(), "best.kl_max") {
			t.Errorf("%s: %v does not say what to set", tc.name, err)
		}
	}
}

// TestMetadataOfNonFiniteMetrics: a checkpoint's metadata holds NaN and infinity as metrics.jsonl does.
func TestMetadataOfNonFiniteMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	torchx.Attach(1)
	p, err := pointer.New(pointer.DefaultOptions(), 8, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	if _, err := saveWeights(path, p, "grpo", 1, "hash", Metrics{"val_loss": math.NaN(), "kl": math.Inf(1), "lr": math.Inf(-1),
		"val_kl": 0.5}); err != nil {
		t.Fatal(err)
	}
	c, err := pointer.ReadCheckpoint(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, want := c.Metadata["metrics"], `{"kl":"inf","lr":"-inf","val_kl":0.5,"val_loss":"nan"}`; got != want {
		t.Errorf("metrics\n got %s\nwant %s", got, want)
	}
}

// counted is a phase over some queries that does nothing.
type counted struct {
	Phase
	info Info
}

func (c counted) Info() Info { return c.info }

// numbered is a source of n queries.
type numbered struct {
	selector.Source
	n int
}

func (s numbered) Len() int { return s.n }

// TestEpochQueries: an epoch over a part of the queries draws another part each time, and the same on a resume.
func TestEpochQueries(t *testing.T) {
	phase := counted{info: Info{Source: numbered{n: 48}, BatchSize: 4, Passes: 1, EpochQueries: new(10)}}
	if n := StepsPerEpoch(phase); n != 3 {
		t.Errorf("%d steps for 10 queries in batches of 4, want 3", n)
	}
	s := &scheduler{env: &Env{Seed: 4, Data: Data{Shuffle: true}}}
	first, again, second := s.order(phase, 1), s.order(phase, 1), s.order(phase, 2)
	if len(first) != 10 || !slices.Equal(first, again) || slices.Equal(first, second) {
		t.Errorf("epoch 1 takes %v, again %v, epoch 2 %v: want ten queries, drawn by epoch", first, again, second)
	}
	phase.info.EpochQueries = new(53)
	if n := len(s.order(phase, 1)); n != 48 {
		t.Errorf("an epoch of %d queries, there are 48", n)
	}
}

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
