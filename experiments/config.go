package experiments

import (
	"errors"
	"regexp"
	"slices"

	"fulcrum/beamdata"
	"fulcrum/internal/option"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/grpo"
	"fulcrum/phases/preflight"
	"fulcrum/phases/rce"
	"fulcrum/reports"
	"fulcrum/rewardutil"
	"fulcrum/selector/pointer"
	"fulcrum/selector/seq2seq"
	"fulcrum/selector/vl"
)

// Config is a run's whole configuration: the schema of our own YAML library.
type Config struct {
	Task          string   `koanf:"task" help:"what the run does" enum:"train,predict,evaluate,generate,score" also:"mode"`
	Seed          int64    `koanf:"seed" help:"seed of initial weights, batch order, dropout and sampling" also:"random_seed,rng_seed"`
	Device        string   `koanf:"device" help:"auto, cpu, cuda or cuda:N"`
	Threads       int      `koanf:"threads" help:"threads of one tensor operation; 0 = 1, which suits small operations: a large model on the CPU wants its cores" range:"[0,1024]" also:"num_threads,n_threads,omp_num_threads"`
	Deterministic bool     `koanf:"deterministic" help:"refuse operations without a deterministic implementation (CUDA); the CPU is always deterministic"`
	Compat        *string  `koanf:"compat" help:"lever_plus: compute everything as the Python reference does, defects included (docs/lever_plus.md); null = our defaults" enum:"lever_plus"`
	DryRun        bool     `koanf:"dry_run" help:"load and check everything, train nothing" also:"dryrun,dry"`
	Policy        string   `koanf:"policy" help:"what is trained: pointer selects in-context examples (section selector), qwen2_5_vl answers questions about images (section vl), seq2seq writes a text from another, such as a summary (section seq2seq)" enum:"pointer,qwen2_5_vl,seq2seq" also:"qwen=qwen2_5_vl,qwen2.5-vl=qwen2_5_vl,vlm=qwen2_5_vl,t5=seq2seq,bart=seq2seq,selector=pointer"`
	Schedule      []string `koanf:"schedule" help:"phases in order; each name is a section: sft, rce, grpo, grpo_online" also:"phases,stages"`

	Data       beamdata.Options             `koanf:"data" help:"queries, pools, beams and rewards"`
	Rewards    rewardutil.TextRewardOptions `koanf:"rewards" help:"terms of a completion's reward (token policies)"`
	Init       InitOptions                  `koanf:"init" help:"where the initial weights come from"`
	Selector   pointer.Options              `koanf:"selector" help:"the pointer selector (policy=pointer)"`
	VL         vl.Options                   `koanf:"vl" help:"the vision-language model (policy=qwen2_5_vl)"`
	Seq2Seq    seq2seq.Options              `koanf:"seq2seq" help:"the encoder-decoder (policy=seq2seq)"`
	SFT        rce.SFTOptions               `koanf:"sft" help:"supervised fine-tuning on the best recorded beam"`
	RCE        rce.Options                  `koanf:"rce" help:"reward-weighted cross entropy on recorded beams"`
	GRPO       grpo.Options                 `koanf:"grpo" help:"group-relative policy optimisation"`
	GRPOOnline grpo.Options                 `koanf:"grpo_online" help:"a second GRPO phase, on sampled groups scored by the reader"`
	Optim      phases.OptimOptions          `koanf:"optim" help:"optimizer of every phase"`
	LRSchedule rewardutil.LRScheduleOptions `koanf:"lr_schedule" help:"learning rate over the steps of each phase"`
	Checkpoint phases.CheckpointOptions     `koanf:"checkpoint" help:"what is saved, and which checkpoint is best"`
	Doctor     doctor.Options               `koanf:"doctor" help:"what is watched while training, and what each finding leads to (docs/doctor.md)"`
	Preflight  preflight.Options            `koanf:"preflight" help:"checks of data and phases before a fresh run's first step (docs/preflight.md)"`
	Eval       EvalOptions                  `koanf:"eval" help:"how evaluations are judged (docs/statistics.md)"`
	Predict    PredictOptions               `koanf:"predict" help:"task=predict"`
	Evaluate   EvaluateOptions              `koanf:"evaluate" help:"task=evaluate"`
	Generate   GenerateOptions              `koanf:"generate" help:"task=generate"`
	Score      ScoreOptions                 `koanf:"score" help:"task=score"`
	Report     reports.ReportOptions        `koanf:"report" help:"plots and report.md"`
	Logging    reports.LoggingOptions       `koanf:"logging" help:"progress, TensorBoard, metrics.jsonl"`
}

// InitOptions names the initial weights.
type InitOptions struct {
	Checkpoint *string `koanf:"checkpoint" help:".safetensors, .pt, .pth, .ckpt or a run folder (its best checkpoint, else its last); null = fresh weights from seed" also:"init_checkpoint,resume_from_checkpoint,ckpt,sft_ckpt,pretrained"`
	Strict     bool    `koanf:"strict" help:"unknown or missing parameters are errors"`
}

// PredictOptions configures task=predict.
type PredictOptions struct {
	Out      *string `koanf:"out" help:"file to write; null = predictions.jsonl in the run folder"`
	Split    string  `koanf:"split" help:"queries to answer" enum:"train,val,eval,all"`
	BeamSize int     `koanf:"beam_size" help:"width of the beam search; 1 = greedy" range:"[1,10000]"`
}

// DefaultConfig returns every key with its default. The YAML library overrides it.
func DefaultConfig() *Config {
	online := grpo.DefaultOptions()
	online.Rollout, online.OldPolicy = "online", "batch"
	return &Config{
		Task: "train", Device: "auto", Policy: "pointer", Schedule: []string{"rce", "grpo"},
		Data: beamdata.DefaultOptions(), Init: InitOptions{Strict: true}, Selector: pointer.DefaultOptions(), VL: vl.DefaultOptions(), Seq2Seq: seq2seq.DefaultOptions(),
		SFT: rce.DefaultSFTOptions(), RCE: rce.DefaultOptions(), GRPO: grpo.DefaultOptions(), GRPOOnline: online,
		Optim: phases.DefaultOptimOptions(), LRSchedule: rewardutil.DefaultLRScheduleOptions(), Checkpoint: phases.DefaultCheckpointOptions(), Doctor: doctor.DefaultOptions(), Preflight: preflight.DefaultOptions(),
		Predict: PredictOptions{Split: "all", BeamSize: 1}, Evaluate: DefaultEvaluateOptions(), Generate: DefaultGenerateOptions(), Score: DefaultScoreOptions(), Rewards: rewardutil.DefaultTextRewardOptions(), Report: reports.DefaultReportOptions(), Logging: reports.DefaultLoggingOptions(),
	}
}

// Uses says whether a task looks at a section: what others hold is not checked against each other.
func (c *Config) Uses(section string) bool {
	text := c.Task == "generate" || c.Task == "score"
	switch section {
	case "evaluate", "generate", "score":
		return c.Task == section
	case "report", "logging":
		return true
	case "selector":
		return c.Task != "evaluate" && c.Policy == "pointer"
	case "vl":
		return c.Task != "evaluate" && c.Policy == "qwen2_5_vl"
	case "seq2seq":
		return c.Task != "evaluate" && c.Policy == "seq2seq"
	case "rewards":
		return c.Task == "train" && c.Policy != "pointer"
	}
	return c.Task != "evaluate" && (!text || section == "init")
}

// Scheduled says whether a section's keys have an effect in this run: a short name stands for them first.
func (c *Config) Scheduled(section string) bool {
	if _, err := Phases().Get(section); err == nil {
		return slices.Contains(c.Schedule, section)
	}
	return c.Uses(section)
}

// devices are the words that device takes.
var devices = regexp.MustCompile(`^(auto|cpu|cuda(:[0-9]+)?)$`)

// Validate checks what several sections decide together, before any data or model is loaded.
func (c *Config) Validate() error {
	if !devices.MatchString(c.Device) {
		return option.Errorf("device", "want auto, cpu, cuda or cuda:N, got %q (did you mean cuda for a GPU, auto for one if there is one?)", c.Device)
	}
	names := Phases()
	seen := map[string]bool{}
	if c.Task == "train" {
		for _, name := range c.Schedule {
			if _, err := names.Get(name); err != nil {
				return option.Errorf("schedule", "%v", err)
			}
			if seen[name] {
				return option.Errorf("schedule", "phase %s is named twice; a second GRPO phase is grpo_online", name)
			}
			seen[name] = true
		}
		if m := c.Checkpoint.Best.Metric; m != nil && (*m == "val_reward" || *m == "val_accuracy") && c.Data.Name == "beams" && c.Data.Reader == nil {
			return option.Errorf("checkpoint.best.metric", "%s needs a reward for selections nobody recorded: data.reader=FILE.npz, or take val_loss", *m)
		}
		online := seen["grpo"] && c.GRPO.Rollout == "online" && c.GRPO.Epochs > 0 || seen["grpo_online"] && c.GRPOOnline.Epochs > 0 ||
			seen["rce"] && c.RCE.Rollout == "online" && c.RCE.Epochs > 0
		if online && c.Data.Name == "beams" && c.Data.Reader == nil {
			return option.Errorf("data.reader", "online rollouts need a reward for selections nobody recorded: data.reader=FILE.npz, or take the phase out of schedule")
		}
	}
	if c.Policy != "pointer" {
		if err := c.validateTokens(seen); err != nil {
			return err
		}
	}
	if c.Task == "evaluate" && c.Evaluate.Metric == "rouge" && c.Eval.Cluster != nil {
		return option.Errorf("eval.cluster", "evaluate.metric=rouge reads ids and texts, which have nothing in common: want null")
	}
	if c.Task == "predict" && c.Init.Checkpoint == nil {
		return option.Errorf("init.checkpoint", "task=predict needs a trained policy: init.checkpoint=RUN_FOLDER or a checkpoint file")
	}
	return nil
}

// validateTokens checks what only token policies ask for; seen are the scheduled phases.
func (c *Config) validateTokens(seen map[string]bool) error {
	if c.Task == "predict" {
		return option.Errorf("task", "predict selects examples (policy=pointer): policy=%s answers with task=generate", c.Policy)
	}
	for _, phase := range []struct {
		name string
		opt  grpo.Options
	}{{"grpo", c.GRPO}, {"grpo_online", c.GRPOOnline}} {
		if !seen[phase.name] || phase.opt.Epochs == 0 {
			continue
		}
		var bad *option.Error
		if err := phase.opt.ValidateTokens(); errors.As(err, &bad) {
			return option.Errorf(phase.name+"."+bad.Key, "%s: add grpo=tokens grpo/kl=k3, which set what a token policy wants", bad.Msg)
		}
	}
	return nil
}
