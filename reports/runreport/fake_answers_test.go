package runreport

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// fakeAnswers writes the folder of a plausible run of a token policy: SFT on targets, then GRPO on sampled
// completions, with a reward of two terms. It is the same to the last bit every time.
func fakeAnswers(t testing.TB, seed uint64) string {
	t.Helper()
	a := &answers{Recorder: reportstest.Begin(t, "answers", filepath.Join(t.TempDir(), "answers"), record.LoggingOptions{LogEverySteps: 1}),
		seed: seed, rng: rand.New(rand.NewPCG(seed, 5))}
	a.evaluate("majority", "", 0, 0.2)
	a.evaluate("reference", "", 0, 0.97)
	a.evaluate("init", "init", 0, 0)
	a.sft(2, 30)
	a.grpo(2, 45)
	a.evaluate("best", "grpo", 2, 0.46)
	reportstest.Must(t, results.WriteSummary(a.Dir, a.End()))
	return a.Dir
}

// answers records the run of a token policy.
type answers struct {
	*reportstest.Recorder
	seed uint64
	rng  *rand.Rand
}

// evaluate records rewards of which 0.9 is the accuracy and 0.1 a term for the format.
func (a *answers) evaluate(policy, phase string, epoch int, mean float64) {
	for i, split := range []string{"val", "dev"} {
		n := []int{200, 400}[i]
		hard, luck := rand.New(rand.NewPCG(3, uint64(n))), rand.New(rand.NewPCG(a.seed, uint64(len(policy)+10*epoch)))
		ids, rewards, accuracies := make([]int64, n), make([]float64, n), make([]float64, n)
		right := 0.0
		for i := range ids {
			x, other, lucky := hard.Float64(), luck.Float64(), luck.Float64() < 0.2
			if lucky {
				x = other
			}
			ids[i] = int64(i)
			if x < mean {
				accuracies[i] = 1
			}
			rewards[i] = 0.9*accuracies[i] + 0.1*math.Ceil(mean)
			right += accuracies[i] / float64(n)
		}
		fields := map[string]any{"reward": 0.9*right + 0.1*math.Ceil(mean), "accuracy": right}
		if policy != "majority" && policy != "reference" {
			fields["reward_vqa"], fields["reward_format"] = right, math.Ceil(mean)
			fields["completion_length"], fields["truncated_share"] = 5-2*mean, 0.25*(1-mean)
		}
		a.Recorder.Evaluate(record.Evaluation{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Shots: 16, QueryIDs: ids}, 0, fields,
			rewards, accuracies)
	}
}

func (a *answers) sft(epochs, perEpoch int) {
	for epoch := 1; epoch <= epochs; epoch++ {
		for i := range perEpoch {
			step := (epoch-1)*perEpoch + i + 1
			a.Global++
			a.Record(record.KindStep, "sft", epoch, step, map[string]any{"loss": 4*math.Exp(-float64(step)/20) + 1 + 0.1*a.rng.NormFloat64(),
				"grad_norm": 1.5, "lr": 2e-3 * (1 - float64(step)/61), "items": 64, "tokens": 190, "step_seconds": 0.1,
				"completion_length": 3.0, "completion_length_min": 2, "completion_length_max": 5, "truncated_share": 0.0})
		}
		at := float64(epoch) / float64(epochs)
		a.Record(record.KindEpoch, "sft", epoch, epoch*perEpoch,
			map[string]any{"loss": 2 - at, "grad_norm": 1.5, "val_loss": 3 - at, "val_kl": 9.5, "completion_length": 3.0, "truncated_share": 0.0,
				"val_reward": 0.1 + 0.3*at, "val_accuracy": 0.33 * at, "val_completion_length": 3.1, "val_truncated_share": 0.01,
				"checkpoint": fmt.Sprintf("checkpoints/sft_epoch%d.safetensors", epoch)})
	}
	a.evaluate("sft", "sft", epochs, 0.34)
}

func (a *answers) grpo(epochs, perEpoch int) {
	total := float64(epochs * perEpoch)
	n := a.rng.NormFloat64
	for epoch := 1; epoch <= epochs; epoch++ {
		var last map[string]any
		for i := range perEpoch {
			step := (epoch-1)*perEpoch + i + 1
			a.Global++
			at := float64(step) / total
			vqa := 0.33 + 0.12*at + 0.03*n()
			histogram := make([]float64, 20)
			for range 200 {
				histogram[min(19, max(0, int(10+2*n())))]++
			}
			last = map[string]any{"loss": 0.01 * n(), "grad_norm": 0.5, "lr": 1e-4 * (1 - at), "ppo_loss": 0.01 * n(), "kl": 0.09 * at,
				"kl_per_token": 0.03 * at, "kl_loss": 0.003 * at, "kl_beta": 0.04,
				"mean_ratio": 1 + 0.01*n(), "clip_fraction": 0.06 * at, "clip_fraction_low": 0.02 * at, "clip_fraction_high": 0.03 * at,
				"clamp_fraction": 0.0,
				"mean_advantage": 0.0, "std_advantage": 0.9, "max_advantage": 2.4, "entropy": 0.8 - 0.3*at, "signal_share": 0.8 - 0.2*at,
				"signal_share_top_k": 0.8 - 0.2*at, "items": 512, "tokens": 1600, "step_seconds": 0.2,
				"mean_reward": 0.9*vqa + 0.1*(0.9+0.1*at), "reward_std": 0.3 - 0.05*at, "reward_vqa": vqa, "reward_vqa_std": 0.45,
				"reward_format": 0.9 + 0.1*at, "reward_format_std": 0.2,
				"completion_length": 3.4 - 0.4*at, "completion_length_min": 1, "completion_length_max": 16 - int(6*at),
				"truncated_share": 0.05 * (1 - at), "adv_hist": histogram}
			a.Record(record.KindStep, "grpo", epoch, step, last)
			if i == 0 {
				reportstest.Must(a, a.RunLog.Completions("grpo", epoch, step, fakeCompletions(epoch)))
			}
		}
		f := map[string]any{"val_loss": 2.0, "val_kl": 0.05 * float64(epoch), "val_reward": 0.42 + 0.02*float64(epoch), "val_accuracy": 0.36 +
			0.02*float64(epoch), "val_completion_length": 3.0, "val_truncated_share": 0.0,
			"checkpoint": fmt.Sprintf("checkpoints/grpo_epoch%d.safetensors", epoch)}
		for name, v := range last {
			if name != "adv_hist" {
				f[name] = v
			}
		}
		a.Record(record.KindEpoch, "grpo", epoch, epoch*perEpoch, f)
		a.evaluate("grpo", "grpo", epoch, 0.42+0.02*float64(epoch))
	}
}

// fakeCompletions are two groups of a step: one with everything that could break a table, one of fourteen
// different texts.
func fakeCompletions(epoch int) []record.Completion {
	var rows []record.Completion
	for i, text := range []string{"red", "red", " red\n", "a|b", "`code` \\ |", "", "\x1b[31mred\x00",
		"the colour of the thing in the middle of the picture is, as far as anybody can tell from here, most likely red"} {
		reward := map[string]float64{"red": 1, " red\n": 0.9}[text]
		rows = append(rows, record.Completion{QueryID: 7, Question: "<image>\nwhat colour | is *this*?", Reference: "red",
			Answers: []string{"red", "red", "red", "crimson", "dark red"},
			Group:   i, Text: text, Tokens: make([]int64, 1+len(text)/4), Truncated: i == 7, Reward: reward,
			Terms: map[string]float64{"vqa": math.Floor(reward), "format": math.Ceil(reward)}, Advantage: (reward - 0.36) / 0.5})
	}
	for i := range 14 {
		reward := float64(i%7) / 7
		rows = append(rows, record.Completion{QueryID: 8, Question: "how many?", Answers: []string{"3", "3", "3"},
			Group: i, Text: string(rune('a' + i)), Tokens: []int64{1, 2}, Reward: reward, Terms: map[string]float64{"vqa": reward, "format": 1},
			Advantage: float64(epoch) * (reward - 0.43)})
	}
	return rows
}
