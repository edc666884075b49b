package job

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/experiments/runfolder"
	"fulcrum/internal/option"
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/phases/preflight"
	"fulcrum/phases/rce"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/reward"
	"fulcrum/rewardutil/schedule"
)

// Config is a run's whole configuration: the schema of our own YAML library.
type Config struct {
	// what the run does
	Task string `koanf:"task" also:"mode"`
	// seed of initial weights, batch order, dropout and sampling
	Seed int64 `koanf:"seed" also:"random_seed,rng_seed"`
	// auto, cpu, cuda or cuda:N
	Device string `koanf:"device"`
	// threads of one tensor operation; 0 = 1; large models on the CPU want its cores
	Threads int `koanf:"threads" range:"[0,1024]" also:"num_threads,n_threads,omp_num_threads"`
	// refuse operations without a deterministic implementation (CUDA); the CPU is always deterministic
	Deterministic bool `koanf:"deterministic"`
	// lever_plus: compute as the Python reference does, defects included (docs/lever_plus.md)
	Compat *string `koanf:"compat" enum:"lever_plus"`
	// training rewards that say nothing: placebo takes another query's, by position in the pool (policy=pointer);
	// placebo_within permutes groups; majority rewards a group's most frequent answer. Evaluations use the true rewards
	Control string `koanf:"control" enum:"none,placebo,placebo_within,majority"`
	// load and check everything, train nothing
	DryRun bool `koanf:"dry_run" also:"dryrun,dry"`
	// what is trained: pointer selects in-context examples (section selector), qwen2_5_vl answers about images (vl),
	// seq2seq writes a text from another
	Policy string `koanf:"policy" also:"qwen=qwen2_5_vl,qwen2.5-vl=qwen2_5_vl,vlm=qwen2_5_vl,t5=seq2seq,bart=seq2seq,selector=pointer"`
	// phases in order; each name is a section: sft, rce, grpo, grpo_online, or one of yours with a kind
	Schedule []string `koanf:"schedule" also:"phases,stages"`

	// queries, pools, beams and rewards
	Data beamdata.Options `koanf:"data"`
	// terms of a completion's reward (token policies)
	Rewards reward.Options `koanf:"rewards"`
	// where the initial weights come from
	Init InitOptions `koanf:"init"`
	// supervised fine-tuning on the best recorded beam
	SFT rce.SFTOptions `koanf:"sft"`
	// reward-weighted cross entropy on recorded beams
	RCE rce.Options `koanf:"rce"`
	// group-relative policy optimisation
	GRPO grpo.Options `koanf:"grpo"`
	// further phases, by the names of their sections
	Sections map[string]configs.Section `koanf:",sections"`
	// optimizer of every phase
	Optim phases.OptimOptions `koanf:"optim"`
	// learning rate over the steps of each phase
	LRSchedule schedule.LROptions `koanf:"lr_schedule"`
	// processes that share the steps of a run
	Parallel ParallelOptions `koanf:"parallel"`
	// what is saved, and which checkpoint is best
	Checkpoint phases.CheckpointOptions `koanf:"checkpoint"`
	// what a run is checked for, before it trains (docs/preflight.md) and while it does (docs/doctor.md)
	Checks preflight.Options `koanf:"checks"`
	// how evaluations are judged (docs/statistics.md)
	Eval EvalOptions `koanf:"eval"`
	// what verdicts rest on
	Evidence record.EvidenceOptions `koanf:"evidence"`
	// plots and report.md
	Report record.ReportOptions `koanf:"report"`
	// progress, TensorBoard, metrics.jsonl
	Logging record.LoggingOptions `koanf:"logging"`
	// who is told when the run or sweep has ended
	OnEnd runfolder.OnEnd `koanf:"on_end"`
	// keys of your own: ${vars.NAME}; +vars.NAME=VALUE makes one
	Vars map[string]any `koanf:"vars"`

	Entries Entries // no key: the tables that task and policy are names of
}

// InitOptions names the initial weights.
type InitOptions struct {
	// .safetensors, .pt, .pth, .ckpt or a run folder (its best checkpoint, else its last); null = fresh weights
	// from seed
	Checkpoint *string `koanf:"checkpoint" also:"init_checkpoint,resume_from_checkpoint,ckpt,sft_ckpt,pretrained"`
	// unknown or missing parameters are errors
	Strict bool `koanf:"strict" when:"checkpoint"`
}

// DefaultConfig returns every key with its default, those of the entries among them. The YAML library overrides it.
func DefaultConfig(e Entries) *Config {
	c := &Config{
		Task: "train", Control: "none", Device: "auto", Policy: "pointer", Schedule: []string{"rce", "grpo"},
		Data: beamdata.DefaultOptions(), Rewards: reward.DefaultOptions(), Init: InitOptions{Strict: true},
		SFT: rce.DefaultSFTOptions(), RCE: rce.DefaultOptions(), GRPO: grpo.DefaultOptions(),
		Optim: phases.DefaultOptimOptions(), LRSchedule: schedule.DefaultLROptions(),
		Parallel:   ParallelOptions{Processes: 1, Backend: "auto", TimeoutSeconds: 30},
		Checkpoint: phases.DefaultCheckpointOptions(),
		Report:     record.DefaultReportOptions(), Logging: record.DefaultLoggingOptions(),
		Entries: e,
	}
	c.Data.More, c.Sections = e.Data, e.sections()
	own := c.Phases().Names()
	for _, kind := range PhaseKinds(e.Phases...) {
		if !slices.Contains(own, kind.Name) {
			c.Sections[kind.Name] = configs.Section{Kind: kind.Name, Options: kind.New(), Help: kind.Help}
		}
	}
	return c.Copy()
}

// Kinds returns the options of every kind of phase that a section may have (configs.Section).
func (c *Config) Kinds() map[string]any {
	out := map[string]any{}
	for _, kind := range PhaseKinds(c.Entries.Phases...) {
		out[kind.Name] = kind.New()
	}
	return out
}

// devices are the words that device takes.
var devices = regexp.MustCompile(`^(auto|cpu|cuda(:[0-9]+)?)$`)

// phaseNames are those that files of checkpoints can have; takenNames stand for other policies in evaluations.
var (
	phaseNames = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	takenNames = []string{"init", "best", "best_beam", "majority", "oracle", "random", "reference", "similarity"}
)

// Validate checks what several sections decide together, before any data or model is loaded.
func (c *Config) Validate() error {
	if !devices.MatchString(c.Device) {
		return option.Errorf("device", "want auto, cpu, cuda or cuda:N, got %q (did you mean cuda for a GPU, auto for one if there is one?)",
			c.Device)
	}
	if c.Compatible() && c.Does().Trains && c.Entries.Reference.Reproduce == nil {
		return option.Errorf("compat", "this program is built without the annex \"the Python reference\"")
	}
	if c.Compatible() && c.Parallel.Cut() > 1 {
		return option.Errorf("parallel.shards", "want 1 with compat=lever_plus: the Python reference has one process")
	}
	if c.Eval.MaxQueries != nil && !c.Does().Trains {
		return option.Errorf("eval.max_queries", "want null with task=%s: only the epochs of training are evaluated on fewer queries", c.Task)
	}
	if c.Does().Trains {
		if err := c.validateSchedule(); err != nil {
			return err
		}
		if err := c.validateControl(); err != nil {
			return err
		}
		if c.Text() != nil {
			if err := c.validateTokens(); err != nil {
				return err
			}
		}
	}
	for _, validate := range []func(c *Config) error{c.Learner().Validate, c.Does().Validate} {
		if validate != nil {
			if err := validate(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// validateSchedule checks the names of the phases, and that something gives the rewards that they and the best checkpoint go by.
func (c *Config) validateSchedule() error {
	table, seen := c.Phases(), map[string]bool{}
	for _, name := range c.Schedule {
		if _, err := table.Get(name); err != nil {
			return option.Errorf("schedule", "%v, or a section of yours with a kind", err)
		}
		if !phaseNames.MatchString(name) || slices.Contains(takenNames, name) || strings.Contains(name, "_epoch") {
			return option.Errorf("schedule", "%s is no name for a phase: want letters, digits and _, without _epoch, and none of %s",
				name, strings.Join(takenNames, ", "))
		}
		if seen[name] {
			return option.Errorf("schedule", "phase %s is named twice; a second GRPO phase is grpo_online, or a section of yours with kind: "+
				"grpo", name)
		}
		seen[name] = true
	}
	for name, phase := range c.planned() {
		if p, ok := phase.(interface{ ValidateShards(shards int) error }); ok {
			if err := ofPhase(name, p.ValidateShards(c.Parallel.Cut())); err != nil {
				return err
			}
		}
		if p, ok := phase.(interface {
			ValidateBest(best phases.BestOptions) error
		}); ok {
			if err := ofPhase(name, p.ValidateBest(c.Checkpoint.Best)); err != nil {
				return err
			}
		}
	}
	if c.Data.Name != "beams" || c.Data.Reader != nil || c.FrozenScore() != "" {
		return nil
	}
	if m := c.Checkpoint.Best.Metric; m != nil && (*m == "val_reward" || *m == "val_accuracy") {
		return option.Errorf("checkpoint.best.metric", "%s needs a reward for selections nobody recorded: data.reader=FILE.npz, or take "+
			"val_recorded_reward, of the recorded candidates, or val_loss", *m)
	}
	if c.Learns(phases.FromSamples) {
		return option.Errorf("data.reader", "nothing scores the new selections of online rollouts: give data.reader=FILE.npz, or take "+
			"exp=beams_v3, whose groups are those recorded in the file")
	}
	return nil
}

// ofPhase puts the phase's name before the key that an error is about; nil where it is about none.
func ofPhase(name string, err error) error {
	if bad, ok := errors.AsType[*option.Error](err); ok {
		return option.Errorf(name+"."+bad.Key, "%s", bad.Msg)
	}
	return nil
}

// validateControl checks that every phase learns from rewards that the control changes.
func (c *Config) validateControl() error {
	text := c.Text() != nil
	switch {
	case c.Control == "none" || c.Control == "placebo" && !text:
		return nil
	case c.Control == "placebo":
		return option.Errorf("control", "only the selector (policy=pointer) has pools to exchange rewards between: want placebo_within or "+
			"majority")
	case c.Control == "majority" && text && !c.Rewards.Answers():
		return option.Errorf("control", "majority compares answers, and no term of rewards does: want rewards.accuracy, rewards.match or "+
			"rewards.vqa with a weight")
	}
	planned := c.planned()
	for _, name := range c.Schedule {
		phase, ok := planned[name]
		if ok && c.Traits(phase).Learns != phases.FromSamples && (text || c.Control == "majority") {
			return option.Errorf("control", "%s changes the rewards of sampled groups, and phase %s learns from recorded candidates: want a "+
				"schedule of phases with rollout=online (schedule=[grpo_online]; init.checkpoint=RUN starts from a trained policy)", c.Control, name)
		}
		if p, ok := phase.(interface{ ValidateControl(control string) error }); ok {
			if err := ofPhase(name, p.ValidateControl(c.Control)); err != nil {
				return err
			}
		}
	}
	return nil
}

// validateTokens checks what only token policies ask for.
func (c *Config) validateTokens() error {
	planned := c.planned()
	for _, name := range c.Schedule {
		p, ok := planned[name].(interface{ ValidateTokens() error })
		if !ok {
			continue
		}
		if bad, ok := errors.AsType[*option.Error](p.ValidateTokens()); ok {
			return option.Errorf(name+"."+bad.Key, "%s: add grpo=tokens grpo/kl=k3, which set what a token policy wants", bad.Msg)
		}
	}
	return nil
}

// Compatible reports whether the run reproduces the Python reference (compat: lever_plus).
func (c *Config) Compatible() bool { return c.Compat != nil }

// AllowsNonFinite reports whether training goes on after NaN and infinity, as the reference does.
func (c *Config) AllowsNonFinite() bool { return c.Compatible() }

// Decode returns the options of a composed configuration.
func Decode(c *configs.Composed) (*Config, error) {
	cfg := new(Config)
	if err := c.Decode(cfg); err != nil {
		return nil, err
	}
	cfg.Data.Compat = cfg.Compatible()
	cfg.Checks.Soft = cfg.Data.Compat
	if by := cfg.Eval.GroupedBy(); by != "image" {
		cfg.Data.Cluster = by
	}
	return cfg, nil
}

// EvalOptions says how evaluations are judged (config section eval).
type EvalOptions struct {
	// questions that count as one: image, or a key of their records; null = by image where it is known
	Cluster *string `koanf:"cluster"`
	// validation queries to evaluate, drawn by data.split_seed; null = all
	MaxQueries *int `koanf:"max_queries" range:"[1,inf)" also:"max_eval_samples"`
}

// Validate refuses a name that no key has.
func (o EvalOptions) Validate() error {
	if o.Cluster != nil && strings.TrimSpace(*o.Cluster) == "" {
		return option.Errorf("cluster", "want image or a key of the records; null = by image where the data knows it")
	}
	return nil
}

// GroupedBy returns what the questions are grouped by: image, or a key of their records.
func (o EvalOptions) GroupedBy() string { return option.Or(o.Cluster, "image") }
