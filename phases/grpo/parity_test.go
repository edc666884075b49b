package grpo

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

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
		opt.Beams, opt.Embeddings = new(golden.Shared(t, "parity", want.Config.Files["beams"])),
			new(golden.Shared(t, "parity", want.Config.Files["emb"]))
		if strings.HasPrefix(want.Config.LegacyPool, "full_table") {
			opt.LegacyPool = "full_table"
		}
		b, err := beamdata.Load(opt)
		if err != nil {
			t.Fatal(err)
		}
		heads := max(1, want.Config.NumHeads)
		p := phasetest.ReferencePolicy(t, golden.Shared(t, "parity", want.Config.Files["init_pt"]), b.RCE.Table.Dim, heads)
		var old selector.Policy = p
		if heads > 1 && want.Config.OldPolicyHeads != "same" {
			if old, err = p.CloneWithHeads(1); err != nil {
				t.Fatal(err)
			}
			defer old.Free()
		}
		known, err := allLogProbs(context.Background(), old, pointer.NewSource(b.RCE), 1, false, false, 0)
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

func TestLossesEqualTheReference(t *testing.T) {
	torchx.Attach(1)
	var cases []phasetest.LossCase
	golden.JSON(t, golden.Shared(t, "parity", "units", "losses.json"), &cases)
	p := phasetest.ReferencePolicy(t, golden.Shared(t, "parity", "inits", "L1", "init.pt"), 768, 1)
	optim := phases.DefaultOptimOptions()
	sched := schedule.LROptions{Name: "constant"}
	for i, c := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			src := c.Source(t)
			env := &phases.Env{Policy: p.Clone(), Initial: p, AllowNonFinite: true,
				Data: phases.Data{Normalize: func(r []float64) []float64 { return r }}}
			defer env.Policy.Free()
			queries := make([]int, c.B)
			for q := range queries {
				queries[q] = q
			}

			opt := DefaultOptions()
			opt.OldPolicy, opt.MaxLogRatio, opt.Clip.Epsilon, opt.Advantage.Clip = "init", math.Inf(1), c.Epsilon, c.AdvantageClip
			opt.Hooks = Hooks{AnySignal: true, CacheLikeSteps: true,
				Advantages: func(b *selector.Batch, o Options, epoch int) (advantage.Selection, []float64, advantage.Stats) {
					return o.Curriculum.ApplyCompat(b.Rewards, b.Valid, b.B(), b.G, epoch, o.Advantage.Clip)
				}}
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
			if err := grpo.Prepare(context.Background(), queries); err != nil {
				t.Fatal(err)
			}
			for q, logp := range c.LogProbs {
				golden.Close(t, widen(grpo.old.cached.logp[q]), logp, 2e-5)
			}
			for q, shift := range c.OldMinusNew {
				for g, d := range shift {
					grpo.old.cached.logp[q][g] += float32(d)
				}
			}
			grpo.startsOld = c.OldMinusNew == nil
			m := phasetest.MustStepAt(t, grpo, 0, queries)
			for _, of := range []struct {
				name string
				want phasetest.Reported
			}{{"loss", c.Loss}, {"ppo_loss", c.PPO}, {"kl_loss", c.KLLoss}, {"kl", c.KL}, {"mean_ratio", c.Ratio}} {
				phasetest.ReportedClose(t, of.name, m[of.name], of.want, 1e-5, 2e-4)
			}
			phasetest.ReportedClose(t, "mean_advantage", m["mean_advantage"], c.MeanAdvantage, 1e-6, 0)
			phasetest.ReportedClose(t, "std_advantage", m["std_advantage"], c.StdAdvantage, 0, 1e-6)
			phasetest.ReportedClose(t, "max_advantage", m["max_advantage"], c.MaxAdvantage, 0, 1e-6)
			phasetest.ReportedClose(t, "grpo grad norm", m["grad_norm"], c.GradNorm, 1e-6, 2e-4)
		})
	}
	if len(cases) < 9 {
		t.Errorf("only %d cases", len(cases))
	}
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
