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

func TestBest(t *testing.T) {
	h := []bestCandidate{
		{"init", 0, "init", 0.5, 0, 0, true}, {"rce", 1, "a", 0.7, 0.2, 0, true}, {"rce", 2, "b", 0.9, 2, 0, true},
		{"grpo", 1, "c", 0.7, 0.1, 0, true}, {"grpo", 2, "d", 0.6, 0.1, 0, true},
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
		{"ties within a phase go to the lowest loss", BestOptions{}, true, []bestCandidate{{Phase: "sft", File: "a", Loss: 3},
			{Phase: "sft", File: "b", Loss: 2}, {Phase: "sft", File: "c", Loss: 2}, {Phase: "grpo", File: "d", Loss: 1}}, "b", true},
		{"reward is the recorded one where nothing scores", BestOptions{Metric: new("reward")}, false, h, "b", true},
		{"mode min", BestOptions{Metric: new("val_reward"), Mode: new("min")}, true, h, "init", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newRule(tc.opt, tc.canScore).choose(tc.history)
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
		if nearest, none := newRule(BestOptions{KLMax: tc.klMax}, true).outside(h); nearest.File != tc.nearest || none != tc.none {
			t.Errorf("kl_max %v: nearest trained candidate %s, outside %v; want %s, %v", tc.klMax, nearest.File, none, tc.nearest, tc.none)
		}
	}
	for canScore, want := range map[bool]string{true: "val_reward", false: "val_recorded_reward"} {
		if r := newRule(BestOptions{Metric: new("reward")}, canScore); r.metric != want || r.sign != 1 {
			t.Errorf("metric reward, selections scored: %v: %s, sign %v; want the largest %s", canScore, r.metric, r.sign, want)
		}
	}
	if n := newRule(BestOptions{KLMax: new(1.0)}, true).choose(h).stale(h, "grpo"); n != 2 {
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
