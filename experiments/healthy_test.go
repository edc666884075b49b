package experiments_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// healthyRuns are 50 runs that are as they should be: every selector, rollout, estimator, controller, schedule,
// reward and policy has its place in one of them. What they have in common is that nothing is wrong with them: a
// warning in one of them is a false alarm. The first of each list also runs in the short tests.
func healthyRuns() []healthy {
	var runs []healthy
	add := func(base base, lists ...string) {
		for i, list := range lists {
			runs = append(runs, healthy{base: base, args: strings.Fields(list), short: i == 0})
		}
	}
	add(fair, // RCE, then GRPO on recorded groups
		"seed=1",
		"seed=2 grpo.kl.controller=proportional grpo.kl.update=moving_average",
		"seed=3 grpo/kl=fixed grpo.kl.beta=0.04 grpo.curriculum.early_epochs=0",
		"seed=4 grpo.kl.estimator=k1 grpo.old_policy=epoch_start",
		"seed=5 grpo.kl.estimator=k2 grpo.kl.reference=epoch_start",
		"seed=6 grpo.kl.estimator=k3 grpo.kl.reference=init grpo.kl.target_max=2",
		"seed=7 grpo.kl.update=step grpo.kl.target_max=1",
		"seed=8 grpo.loss=ppo_clip grpo.clip.epsilon_high=0.3",
		"seed=9 grpo.ratio=token grpo.loss=dapo grpo.kl.estimator=k3",
		"seed=10 grpo.ratio=token grpo.loss=dr_grpo grpo.lr=3e-4",
		"seed=11 grpo.loss=gspo grpo.num_iterations=2",
		"seed=12 grpo.advantage.method=batch_std grpo.old_policy=every_n grpo.update_old_after=4",
		"seed=13 grpo.advantage.method=rank grpo/curriculum=none",
		"seed=14 grpo.advantage.method=leave_one_out grpo.zero_variance=filter",
		"seed=15 grpo.advantage.method=mean_only grpo.curriculum.baseline=subset",
		"seed=16 grpo.temperature.enabled=true grpo.lr=5e-4",
		"seed=17 grpo.freeze=[query] grpo.micro_batch=8",
		"seed=18 grpo.entropy_weight=0.01 lr_schedule=constant",
		"seed=19 rce.rewards=raw rce.temperature.relative=true grpo.kl.sync_steps=6",
		"seed=20 rce.temperature.schedule=cosine data.normalize.method=rank_normalize",
		"seed=21 rce.temperature.schedule=exponential rce.average=token optim.weight_decay=0.1",
		"seed=22 schedule=[sft,grpo] sft.epochs=2 sft.lr=1e-3",
		"seed=23 rce.top1_only=true rce.micro_batch=8",
		"seed=24 rce.epochs=4 grpo.epochs=0 selector.dropout=0.1",
		"seed=25 rce.epochs=0 grpo.epochs=4 data.reward.mode=hard_plus_soft",
		"seed=26 selector=v1", "seed=27 selector=v2", "seed=28 selector=v3 rce.lr=3e-4 grpo.lr=3e-4",
		"seed=29 selector=v4_2", "seed=30 selector=v4_5 grpo.lr=5e-4", "seed=31 selector=v4_8", "seed=32 selector=v4_10",
		"seed=33 exp=okvqa_v3 grpo.epochs=4",
		"seed=34 data.shapes.shots=4 grpo/kl=fixed grpo.kl.beta=0 grpo.kl.measure_every=3",
		"seed=35 logging.log_every_steps=5 checkpoint.every_steps=5 data.shapes.pool_size=16",
	)
	add(sampling, // GRPO on groups that the policy samples, after a warm-up
		"seed=1",
		"seed=2 grpo_online.group_size=4 grpo_online.sample_temperature=1.5",
		"seed=3 grpo_online.group_size=16 grpo_online.num_iterations=2",
		"seed=4 grpo_online.zero_variance=resample grpo_online.advantage.method=z_score",
		"seed=5 schedule=[rce] rce.rollout=online rce.epochs=4 rce.rewards=raw rce.temperature={start:0.2,end:0.1}",
	)
	add(fromFiles, // a beam file without a reader
		"seed=1", "seed=2 data.train_ratio=0.6 schedule=[sft,rce] sft.epochs=1")
	add(real, // OK-VQA
		"exp=okvqa_v3 seed=1", "exp=okvqa_online seed=0", "exp=okvqa_online seed=2 selector=v3_skip grpo.epochs=0",
		"exp=beams_v3 data.shots=2 seed=3 schedule=[sft,grpo] sft.epochs=2 sft.lr=1e-3") // 1e-4 moves nothing in so few steps
	add(answers, // a vision-language model
		"seed=1", "seed=2 grpo.num_iterations=2 grpo.loss=dapo", "seed=3 schedule=[sft] sft.epochs=2",
		"seed=4 rce.temperature={start:1.0,end:1.0,schedule:constant}")
	return runs
}

type healthy struct {
	base  base
	args  []string
	short bool
}

// fair is an offline run of 48 steps on 192 questions.
func fair(t *testing.T, more ...string) []string {
	return offline(t, with([]string{"data.shapes.train_queries=192", "data.shapes.val_queries=96", "rce.epochs=2"}, more)...)
}

func sampling(t *testing.T, more ...string) []string {
	return fair(t, with([]string{"exp=okvqa_online", "rce.epochs=1", "grpo.epochs=1", "grpo_online.epochs=2"}, more)...)
}

func fromFiles(t *testing.T, more ...string) []string { return recorded(t, newScenes(), more...) }

// real runs train on the first questions of OK-VQA.
func real(t *testing.T, more ...string) []string {
	root, samples := filepath.Dir(golden.Shared(t, "okvqa", "embeddings.npy")), 512
	if testing.Short() {
		samples = 128
	}
	return append([]string{"threads=1", "data=okvqa", "data.root=" + root, "data.max_samples=" + itoa(samples), "report.plots=false",
		"logging.tensorboard=false"}, more...)
}

// answers first teaches the model to answer, then has it learn from its own answers.
func answers(t *testing.T, more ...string) []string {
	return answering(t, with([]string{"schedule=[sft,rce,grpo]", "data.conversations.demos=96", "sft.epochs=1"}, more)...)
}

func TestHealthyRunsRaiseNoWarning(t *testing.T) {
	t.Parallel()
	runs := healthyRuns()
	if len(runs) != 50 {
		t.Errorf("%d runs, want 50", len(runs))
	}
	for i, h := range runs {
		if testing.Short() && !h.short {
			continue
		}
		t.Run(fmt.Sprintf("%02d %s", i+1, strings.Join(h.args, " ")), func(t *testing.T) {
			t.Parallel()
			if c := runPlant(t, program(t), plant{base: h.base, args: h.args}); len(c.events) > 0 || c.result.Code != 0 {
				t.Errorf("findings %v, exit code %d\n%s", c.names(), c.result.Code, c.result.Stderr)
			}
		})
	}
}
