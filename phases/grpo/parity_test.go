package grpo

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/golden"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// reported is a number of the recordings: "nan", "inf" and "-inf" are strings.
type reported float64

func (x *reported) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*x = reported(f)
	return err
}

func reportedClose(t *testing.T, what string, got any, want reported, abs, rel float64) {
	t.Helper()
	g, w := got.(float64), float64(want)
	if g == w || math.IsNaN(g) && math.IsNaN(w) || math.Abs(g-w) <= abs+rel*math.Abs(w) {
		return
	}
	t.Errorf("%s: got %.9g, want %.9g", what, g, w)
}

func referencePolicy(t *testing.T, init string, dim, heads int) *pointer.Policy {
	t.Helper()
	opt := pointer.DefaultOptions()
	opt.Taken, opt.NumHeads = "minus_100", heads
	p, err := pointer.Open(init, pointer.OpenOptions{Options: opt, Dim: dim, Device: "cpu", Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	return p
}

// Old log-probabilities of every recorded run: the initial policy, rebuilt with the heads that it had.
func TestOldLogProbsEqualTheReference(t *testing.T) {
	torchx.Attach(1)
	paths, err := filepath.Glob(filepath.Join(golden.Shared(t, "parity", "scenarios"), "*", "expected.json"))
	if err != nil || len(paths) < 24 {
		t.Fatalf("%d scenarios, %v", len(paths), err)
	}
	worst, seen := 0.0, 0
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		if testing.Short() && name != "a_legacy_main" && name != "c_layers3" && !strings.HasPrefix(name, "e_") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Config struct {
				Files          map[string]string
				LegacyPool     string `json:"legacy_pool"`
				NumHeads       int    `json:"num_heads"`
				OldPolicyHeads string `json:"old_policy_heads"`
			}
			OldLogProbs [][2]json.RawMessage `json:"old_log_probs"`
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		opt := beamdata.DefaultOptions()
		opt.Name, opt.Compat, opt.PoolSize, opt.Reward.NaNIsBest = "beams", true, new(64), true
		opt.Beams, opt.Embeddings = new(golden.Shared(t, "parity", want.Config.Files["beams"])), new(golden.Shared(t, "parity", want.Config.Files["emb"]))
		if strings.HasPrefix(want.Config.LegacyPool, "full_table") {
			opt.LegacyPool = "full_table"
		}
		b, err := beamdata.Load(opt)
		if err != nil {
			t.Fatal(err)
		}
		heads := max(1, want.Config.NumHeads)
		p := referencePolicy(t, golden.Shared(t, "parity", want.Config.Files["init_pt"]), b.RCE.Table.Dim, heads)
		var old selector.Policy = p
		if heads > 1 && want.Config.OldPolicyHeads != "same" {
			if old, err = p.CloneWithHeads(1); err != nil {
				t.Fatal(err)
			}
			defer old.Free()
		}
		known, err := know(context.Background(), old, pointer.NewSource(b.RCE), 1, false, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.OldLogProbs) != len(known.logp) {
			t.Fatalf("%s: %d queries, want %d", name, len(known.logp), len(want.OldLogProbs))
		}
		for q, row := range want.OldLogProbs {
			var logp []float64
			if err := json.Unmarshal(row[1], &logp); err != nil || string(row[0]) != fmt.Sprint(b.RCE.IDs[q]) || len(logp) != len(known.logp[q]) {
				t.Fatalf("%s: query %s with %d, want %d with %d (%v)", name, row[0], len(logp), b.RCE.IDs[q], len(known.logp[q]), err)
			}
			for g, w := range logp {
				d := math.Abs(float64(known.logp[q][g]) - w)
				if worst = math.Max(worst, d); d > 2e-5 { // the spec's tolerance
					t.Errorf("%s: query %s candidate %d: %.9g, want %.9g", name, row[0], g, known.logp[q][g], w)
				}
			}
		}
		seen++
	}
	t.Logf("%d scenarios, largest difference %.2g", seen, worst)
}

// lossCase is a row of units/losses.json: losses on explicit inputs with the weights of inits/L1.
type lossCase struct {
	B, K          int
	NumBeams      int    `json:"num_beams"`
	Query         string `json:"query_emb_b64"`
	Cand          string `json:"cand_emb_b64"`
	Labels        [][][]int32
	Rewards       [][]reported
	Smoothing     float64     `json:"label_smoothing"`
	Temperature   float64     `json:"rce_temperature"`
	Rank          bool        `json:"rce_rank"`
	Top1          bool        `json:"rce_top1"`
	LogProbs      [][]float64 `json:"log_probs"`
	OldMinusNew   [][]float64 `json:"old_minus_new"`
	RCELoss       reported    `json:"rce_loss"`
	RCEGradNorm   reported    `json:"rce_grad_norm"`
	TopK          *int        `json:"use_top_k"`
	ClipOnly      bool        `json:"ppo_clip_only"`
	AdvantageClip float64     `json:"advantage_clip"`
	Epsilon       float64     `json:"clip_epsilon"`
	Beta          float64     `json:"kl_beta"`
	Loss          reported    `json:"grpo_loss"`
	PPO           reported    `json:"grpo_ppo_loss"`
	KLLoss        reported    `json:"grpo_kl_loss"`
	KL            reported    `json:"grpo_kl"`
	Ratio         reported    `json:"grpo_mean_ratio"`
	MeanAdvantage reported    `json:"grpo_mean_advantage"`
	StdAdvantage  reported    `json:"grpo_std_advantage"`
	MaxAdvantage  reported    `json:"grpo_max_advantage"`
	GradNorm      reported    `json:"grpo_grad_norm"`
}

func (c lossCase) source(t *testing.T) *pointer.Source {
	t.Helper()
	const dim = 768
	var table []float32
	for _, text := range []string{c.Query, c.Cand} {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(raw); i += 4 {
			table = append(table, math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		}
	}
	var qs []beamdata.Query
	for b := range c.B {
		q := beamdata.Query{ID: int64(b), Candidates: c.Labels[b]}
		for k := range c.K {
			q.Pool = append(q.Pool, int32(c.B+b*c.K+k))
		}
		for _, r := range c.Rewards[b] {
			q.Rewards = append(q.Rewards, float64(r))
		}
		qs = append(qs, q)
	}
	set, err := beamdata.NewSet("losses", beamdata.NewTable(len(table)/dim, dim, table), len(c.Labels[0][0]), qs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pointer.NewSource(set)
}

func TestLossesEqualTheReference(t *testing.T) {
	torchx.Attach(1)
	var cases []lossCase
	golden.JSON(t, golden.Shared(t, "parity", "units", "losses.json"), &cases)
	p := referencePolicy(t, golden.Shared(t, "parity", "inits", "L1", "init.pt"), 768, 1)
	optim := phases.DefaultOptimOptions()
	optim.GoOn = true
	sched := schedule.LROptions{Name: "constant"}
	for i, c := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			src := c.source(t)
			env := &phases.Env{Policy: p.Clone(), Initial: p, Data: phases.Data{Normalize: func(r []float64) []float64 { return r }}}
			defer env.Policy.Free()
			queries := make([]int, c.B)
			for q := range queries {
				queries[q] = q
			}

			rceOpt := rce.DefaultOptions()
			rceOpt.Rewards, rceOpt.Top1Only, rceOpt.Compat = "raw", c.Top1, true
			rceOpt.Temperature = schedule.TemperatureOptions{Start: c.Temperature, End: c.Temperature, Schedule: "constant"}
			phase := rce.New(rceOpt, optim, sched, src, c.B, c.Smoothing)
			if err := phase.Begin(env, 1); err != nil {
				t.Fatal(err)
			}
			if !c.Rank { // no switch of the reference reaches ranks
				m := mustStep(t, phase, queries)
				reportedClose(t, "rce loss", m["loss"], c.RCELoss, 1e-5, 0)
				reportedClose(t, "rce grad norm", m["grad_norm"], c.RCEGradNorm, 1e-6, 1e-4)
			}
			phase.End()
			env.Policy.Params().CopyFrom(p.Params())

			opt := DefaultOptions()
			opt.Compat, opt.OldPolicy, opt.MaxLogRatio, opt.Clip.Epsilon, opt.Advantage.Clip = true, "init", math.Inf(1), c.Epsilon, c.AdvantageClip
			opt.Curriculum = advantage.CurriculumOptions{LateTopK: c.TopK, Baseline: "subset"}
			opt.KL.Reference, opt.KL.Estimator, opt.KL.Beta = "init", "k3_reversed", c.Beta
			if c.ClipOnly {
				opt.Loss = "ppo_clip"
			}
			grpo := New("grpo", opt, optim, sched, src, c.B)
			if err := grpo.Begin(env, 1); err != nil {
				t.Fatal(err)
			}
			defer grpo.End()
			if err := grpo.Prepare(context.Background()); err != nil {
				t.Fatal(err)
			}
			for q, logp := range c.LogProbs {
				golden.Close(t, widen(grpo.old.known.logp[q]), logp, 2e-5)
			}
			for q, shift := range c.OldMinusNew {
				for g, d := range shift {
					grpo.old.known.logp[q][g] += float32(d)
				}
			}
			grpo.startsOld = c.OldMinusNew == nil
			m := mustStep(t, grpo, queries)
			for _, of := range []struct {
				name string
				want reported
			}{{"loss", c.Loss}, {"ppo_loss", c.PPO}, {"kl_loss", c.KLLoss}, {"kl", c.KL}, {"mean_ratio", c.Ratio}} {
				reportedClose(t, of.name, m[of.name], of.want, 1e-5, 2e-4)
			}
			reportedClose(t, "mean_advantage", m["mean_advantage"], c.MeanAdvantage, 1e-6, 0)
			reportedClose(t, "std_advantage", m["std_advantage"], c.StdAdvantage, 0, 1e-6)
			reportedClose(t, "max_advantage", m["max_advantage"], c.MaxAdvantage, 0, 1e-6)
			reportedClose(t, "grpo grad norm", m["grad_norm"], c.GradNorm, 1e-6, 2e-4)
		})
	}
	if len(cases) < 9 {
		t.Errorf("only %d cases", len(cases))
	}
}

func mustStep(t *testing.T, p phases.Phase, queries []int) phases.Metrics {
	t.Helper()
	defer torchx.Scope()()
	m, err := p.Step(context.Background(), 1, 0, 0, queries)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
