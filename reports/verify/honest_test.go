package verify

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/internal/stat"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
)

// honestRun writes the folder of a small run whose records agree: epochs are means of their steps, evaluations means
// of their scores. It is the same to the last bit every time.
func honestRun(t testing.TB) string {
	t.Helper()
	h := honestRecords{reportstest.Begin(t, "honest", filepath.Join(t.TempDir(), "run"), record.DefaultLoggingOptions())}
	reportstest.Must(t, os.MkdirAll(filepath.Join(h.Dir, "checkpoints"), 0o755))
	weights := tensorfile.Tensor{Name: "a", DType: tensorfile.U8, Shape: []int{7}, Data: []byte("weights")}
	reportstest.Must(t, tensorfile.WriteSafetensors(filepath.Join(h.Dir, "checkpoints", "grpo_epoch2.safetensors"),
		[]tensorfile.Tensor{weights}, nil))
	h.RunLog.Plan([]record.PhasePlan{{Name: "rce", Epochs: 2, StepsPerEpoch: 5}, {Name: "grpo", Epochs: 2, StepsPerEpoch: 5}})
	reportstest.Must(t, h.RunLog.Infof("pointer: 12 parameters on cpu, 1 threads"))
	h.evaluate("random", "", 0, -0.2, nil)
	h.evaluate("similarity", "", 0, 0, nil)
	h.evaluate("init", "init", 0, 0, map[string]any{"kl": 0.0})
	for p, phase := range []string{"rce", "grpo"} {
		for epoch := 1; epoch <= 2; epoch++ {
			gain := 0.01 * float64(2*p+epoch)
			h.epoch(phase, epoch, gain)
			if epoch == 2 {
				h.evaluate(phase, phase, epoch, gain, map[string]any{"loss": 3 - gain, "kl": 0.05 + gain})
			}
		}
	}
	h.Record(record.KindEvent, "grpo", 2, 10, map[string]any{"event": "kl_beta_at_bound", "severity": "warning",
		"message": "the KL coefficient sits on its bound 1: widen grpo.kl.beta_max"})
	h.evaluate("best", "grpo", 2, 0.04, map[string]any{"kl": 0.09})
	summary := h.End()
	_, scores := honestScores(0.04)
	summary.Best.Value = record.Number(stat.Mean(scores))
	run, err := record.ReadRun(h.Dir)
	reportstest.Must(t, err)
	summary.AddRecorded(run)
	reportstest.Must(t, results.WriteSummary(h.Dir, summary))
	_, err = record.WriteManifest(h.Dir, "test", nil)
	reportstest.Must(t, err)
	reportstest.Must(t, runreport.RebuildReport(h.Dir))
	return h.Dir
}

type honestRecords struct{ *reportstest.Recorder }

// honestScores returns the scores of 40 questions under a policy.
func honestScores(gain float64) (ids []int64, scores []float64) {
	ids, scores = make([]int64, 40), make([]float64, 40)
	for i := range scores {
		ids[i], scores[i] = int64(i), float64((i*7)%11)/11+gain*float64(i%3)
	}
	return ids, scores
}

// evaluate records what a policy scores on both splits.
func (h honestRecords) evaluate(policy, phase string, epoch int, gain float64, more map[string]any) {
	h.Helper()
	for _, split := range []string{"val", "dev"} {
		ids, scores := honestScores(gain)
		fields := map[string]any{"reward": stat.Mean(scores)}
		maps.Copy(fields, more)
		h.Recorder.Evaluate(record.Evaluation{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Shots: 2, QueryIDs: ids}, 0, fields,
			scores)
	}
}

// epoch records five steps and the epoch that they make.
func (h honestRecords) epoch(phase string, epoch int, gain float64) {
	h.Helper()
	means, counts := map[string]any{}, make([]float64, 10)
	for i := range 5 {
		h.Global++
		step := 5*(epoch-1) + i + 1
		at := float64(step)
		f := map[string]any{"loss": 3 - 0.1*at, "grad_norm": 1 + 0.3/at, "lr": 1e-3, "step_seconds": 0.01 * at}
		if phase == "grpo" {
			f["kl"], f["kl_beta"], f["mean_ratio"], f["clip_fraction"] = 0.013*at, 0.1, 1.01, 0.05
			f["mean_advantage"], f["std_advantage"], f["max_advantage"] = 0.01, 0.9, 2.0
		}
		for name, x := range f {
			sum, _ := means[name].(float64)
			means[name] = sum + x.(float64)
		}
		if phase == "grpo" {
			histogram := make([]float64, 10)
			histogram[i], histogram[9-i] = 3, 4
			f["adv_hist"] = histogram
			counts[i], counts[9-i] = counts[i]+3, counts[9-i]+4
		}
		h.Record(record.KindStep, phase, epoch, step, f)
	}
	for name, sum := range means {
		means[name] = sum.(float64) / 5
	}
	if phase == "grpo" {
		means["adv_hist"] = counts
	}
	_, scores := honestScores(gain)
	means["checkpoint"] = fmt.Sprintf("checkpoints/%s_epoch%d.safetensors", phase, epoch)
	means["val_loss"], means["val_kl"], means["val_reward"] = 3-gain, 0.05+gain, stat.Mean(scores)
	h.Record(record.KindEpoch, phase, epoch, 5*epoch, means)
}
