// Package docs keeps README.md and docs/ true: generated pages are current, and what the text names
// (keys, groups, commands, files, links) exists. It composes configurations with the program's schema,
// so it stands beside the program, above everything it imports.
//
//	go test ./cmd/run/docs -update    rewrites the generated pages
package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/slurm"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/record"
)

const generated = "<!-- Generated: go test ./cmd/run/docs -update. Edit the option structs, not this page. -->\n\n"

func docsPath(name string) string { return filepath.Join(golden.RepoRoot(), "docs", name) }

func TestConfigurationPageIsCurrent(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# Configuration\n\n" + generated)
	b.WriteString("The forty keys that people set most come first; then groups, and every other key by section.\n\n")
	page := schema(t).Markdown(firstKeys...)
	first, rest, _ := strings.Cut(page, "\n\n")
	b.WriteString(first + "\n\n## How to read this page\n\n" +
		"Defaults are the program's; of several choices the first is the default. ≥, > and in limit numbers. The YAML library\n" +
		"(`configs/conf/`) changes some defaults, by group. `run explain KEY` prints a key's meaning and the file or override that set\n" +
		"it. `run --cfg job` prints the keys that act: the sections of the chosen task, policy, data and phases. Of a part that is\n" +
		"switched off it prints the switch, such as `grpo.temperature.enabled`, and the keys that you have set. A key of yours that\n" +
		"acts nowhere is refused with the choice that brings it; such keys of presets are left out.\n\n")
	b.WriteString("| Group | Options, each a file whose first lines say what it is |\n|---|---|\n")
	options, groups := groupOptions(t)
	for _, g := range groups {
		fmt.Fprintf(&b, "| %s | `%s` |\n", g, strings.Join(options[g], "`, `"))
	}
	b.WriteString("\n`schedule` names sections, each a phase. `kind` chooses the work of a phase and its keys. The " +
		"sections sft, rce and grpo\n" +
		"have the kind of their name; any other section becomes a phase by a `kind`, such as grpo_online of kind grpo. Keys that it does\n" +
		"not set have the defaults of the kind, as below, not the values of the section grpo; `--cfg job` shows the keys that it sets.\n" +
		"Rows of metrics.jsonl, checkpoints and reports call it by its section:\n\n" +
		"```yaml\nschedule: [rce, grpo, my_grpo]\nmy_grpo: {kind: grpo, lr: 1e-6, epochs: 2}\n```\n\n" +
		"    run exp=okvqa_v3 'schedule=[rce,grpo,my_grpo]' +my_grpo.kind=grpo my_grpo.lr=1e-6\n")
	b.WriteString("\nHydra's own node (`hydra.*`: run folder, sweeps, launchers) is printed by `run --cfg hydra`.\n\n")
	b.WriteString("## Top level\n\n" + strings.TrimRight(rest, "\n") + "\n")
	b.WriteString("\n" + strings.TrimRight(hydraOptions(t), "\n") + "\n")
	golden.File(t, docsPath("configuration.md"), b.Bytes())
	// A key of a struct that several sections take counts once, as it is documented once. The number may only fall.
	if n := len(regexp.MustCompile("(?m)^`[a-z0-9_.]+` \\| .* \\| .*$").FindAllString(b.String(), -1)); n > documentedKeys {
		t.Errorf("%d documented keys, want at most %d: make one a constant beside the code that reads it", n, documentedKeys)
	} else {
		t.Logf("%d documented keys", n)
	}
	if n := len(strings.Fields(b.String())); n > mostWords {
		t.Errorf("%d words, want at most %d: say what a key does, not how", n, mostWords)
	}
	if len(firstKeys) != 40 {
		t.Errorf("%d keys on the first page, want 40", len(firstKeys))
	}
}

// firstKeys are the keys that people set most: those of the examples in README and docs, and what an experiment of one's own begins with.
var firstKeys = []string{
	"task", "policy", "schedule", "seed", "device", "threads", "dry_run", "compat",
	"data.name", "data.root", "data.beams", "data.embeddings", "data.reader", "data.batch_size", "data.max_samples",
	"data.conversations.train", "data.texts.train", "data.reward.mode", "init.checkpoint",
	"selector.hidden_dim", "selector.temperature", "vl.path", "vl.max_pixels", "seq2seq.path", "vl.lora.rank", "vl.generation.max_new_tokens",
	"rce.epochs", "rce.lr", "rce.temperature.start", "rce.temperature.end",
	"grpo.loss", "grpo.group_size", "grpo.clip.epsilon", "grpo.advantage.method", "grpo.kl.beta", "grpo.kl.controller",
	"optim.weight_decay", "checkpoint.best.metric", "report.plots", "checks.off",
}

// What docs/configuration.md may hold: keys that it explains, and words.
const (
	documentedKeys = 420
	mostWords      = 9_090
)

// hydraOptions documents the keys of the hydra node that act on sweeps.
func hydraOptions(t *testing.T) string {
	t.Helper()
	type node struct {
		Hydra struct {
			Sweeper  sweeper.Options       `koanf:"sweeper" help:"which jobs a sweep has, what they are judged by, what follows a failure"`
			Launcher launcher.LocalOptions `koanf:"launcher" help:"with hydra/launcher=local: processes on this machine"`
		} `koanf:"hydra" help:"of Hydra's own node, the keys that act on sweeps (sweeps.md)"`
	}
	type cluster struct {
		Hydra struct {
			Launcher slurm.Options `koanf:"launcher" help:"with hydra/launcher=slurm: jobs of a cluster"`
		} `koanf:"hydra" help:"of the same node, on a cluster (slurm.md)"`
	}
	var local node
	local.Hydra.Sweeper, local.Hydra.Launcher = sweeper.DefaultOptions(), launcher.DefaultLocalOptions()
	var nodes cluster
	nodes.Hydra.Launcher = slurm.DefaultOptions()
	var text string
	for _, options := range []any{&local, &nodes} {
		s, err := configs.SchemaOf(options, nil)
		if err != nil {
			t.Fatal(err)
		}
		text += s.Markdown() + "\n"
	}
	return text
}

// groupOptions lists the options of the library's groups, Hydra's own left out, and the groups in order.
func groupOptions(t *testing.T) (options map[string][]string, groups []string) {
	t.Helper()
	options = map[string][]string{}
	err := fs.WalkDir(configs.Library(), ".", func(name string, entry fs.DirEntry, err error) error {
		if group := path.Dir(name); err == nil && strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(name, "hydra/") && group != "." {
			options[group] = append(options[group], strings.TrimSuffix(path.Base(name), ".yaml"))
		}
		return err
	})
	if err != nil || len(options) < 10 {
		t.Fatalf("%d groups in the library, want at least 10: %v", len(options), err)
	}
	return options, slices.Sorted(maps.Keys(options))
}

func TestMetricsPageIsCurrent(t *testing.T) {
	elsewhere := elsewhereNames()
	known := map[string]bool{}
	var b bytes.Buffer
	b.WriteString("# Metrics\n\n" + strings.Replace(generated, "the option structs", "record.Metrics and this package", 1) + metricsIntro)
	b.WriteString("| Name | Unit | Meaning | Elsewhere |\n|---|---|---|---|\n")
	for _, m := range record.Metrics() {
		known[m.Name] = true
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Unit, strings.ReplaceAll(m.Help, "|", `\|`), elsewhere[m.Name])
	}
	for name := range elsewhere {
		if !known[name] {
			t.Errorf("elsewhereNames has %s, which record.Metrics does not know", name)
		}
	}
	b.WriteString(metricsNotes)
	golden.File(t, docsPath("metrics.md"), b.Bytes())
}

const metricsIntro = `A metric has one name in the code, in metrics.jsonl, in plots, in TensorBoard and here. Every line of
metrics.jsonl is one JSON object:

| Field | Meaning |
|---|---|
| ` + "`kind`" + ` | step: one optimizer step; epoch: a finished epoch (means of its steps, and validation); eval: an evaluation of the initial policy, a baseline, a stage or the best checkpoint; event: a warning, a resume, an early stop |
| ` + "`phase`" + ` | name in the schedule; init for the initial policy, empty for baselines |
| ` + "`epoch`" + ` | from 1; 0 is before training |
| ` + "`step`" + ` | optimizer step of the phase, from 1 |
| ` + "`global_step`" + ` | optimizer step of the run, from 1 |
| ` + "`time`" + ` | seconds since 1970 |

The other fields depend on the kind. Non-finite numbers are the strings "nan", "inf" and "-inf". A key is
left out where its number is unknown; nothing stands in for it.

"Elsewhere" is what the same quantity is called in TRL's GRPOTrainer unless another trainer is named.

`

const metricsNotes = `
## In TensorBoard, MLflow and W&B

All show the same names, over the optimizer step of the run:

| Row | Here, in all three | TRL and the HF Trainer in TensorBoard | and in MLflow |
|---|---|---|---|
| a step of phase grpo | ` + "`grpo/train/kl` | `train/kl` | `kl`" + ` |
| an epoch of phase grpo | ` + "`grpo/epoch/val_loss` | `eval/loss` | `eval_loss`" + ` |
| an evaluation of a policy | ` + "`eval/dev/best/reward`" + ` | – | – |

MLflow: set ` + "`MLFLOW_TRACKING_URI=http://HOST:PORT`" + ` and every training run, a sweep's jobs too, is copied to that
server while it happens. Read besides are ` + "`MLFLOW_EXPERIMENT_NAME`" + ` (fulcrum) or ` +
	"`MLFLOW_EXPERIMENT_ID`, `MLFLOW_RUN_NAME`" + `
(experiment, folder), ` + "`MLFLOW_TRACKING_TOKEN`, or `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`" + `, and
` + "`MLFLOW_RUN_ID`" + ` (a run to log to; of a sweep's jobs, their parent).

- Settings become parameters (500 bytes each, headers of HTTP requests left out), warnings, best checkpoint and state
  tags, the report the run's description. A server that serves its artifacts itself gets report.md, report.html,
  summary.json and the configuration too.
- The server cannot fail a run, and slows only its end, by 5 seconds. What waits for one that is away is sent later, up to
  50,000 values; the console says how many were lost. A resumed run goes on in its MLflow run (mlflow.json).
- Numbers that are not finite are not sent, because the pages of MLflow 3 do not load with them: the tag
  ` + "`fulcrum.nonfinite`" + ` names them and their first step. metrics.jsonl has everything.
- Only http:// and https:// are logged to. A ` + "`file:`" + ` URI, a folder or a database is refused with a warning:
  ` + "`mlflow server --backend-store-uri URI`" + ` serves it.

W&B: ` + "`logging.wandb=true`" + ` writes ` + "`wandb/offline-run-*/run-*.wandb`" + ` into the run folder, as W&B's client (0.31)
does offline; ` + "`wandb sync DIR/wandb/offline-run-*`" + ` uploads it when it has ended.

- W&B's own step counts rows; metrics are drawn over ` + "`global_step`" + `. Numbers that are not finite and lists are left out.
- ` + "`WANDB_PROJECT`" + ` (fulcrum) and ` + "`WANDB_ENTITY`" + ` are read; the jobs of a sweep are a group. Options of ` + "`wandb sync`" + ` go before them.

## Notes for readers of other trainers' logs

- KL is nats per sequence; TRL averages over tokens. Divide by the number of shots to compare; token policies report
  ` + "`kl_per_token`" + ` too, and their entropy is per token as TRL's.
- ` + "`clip_fraction`" + ` counts every ratio outside the clip range; TRL's counts those where the clip changes the
  gradient, which depends on the advantage's sign: ` + "`clip_fraction_low`" + ` + ` + "`clip_fraction_high`" + `.
- ` + "`std_advantage`" + ` is that of the normalised advantages that enter the loss. ` + "`reward_std`" + ` is the deviation of
  raw rewards within groups.
- ` + "`policy/approxkl_avg`" + ` (TRL PPO) and ` + "`losses/approx_kl`" + ` (cleanrl) are the KL between the old policy and the new
  one: here ` + "`mean_ratio`" + ` and the clip fractions show that distance. ` + "`kl`" + ` is the distance to the reference policy.
- TRL's PPO names with ` + "`ppo/…` and `env/…`" + ` are those of versions before 0.12.
- TRL can scale rewards by the batch; its ` + "`reward_std`" + ` is then the deviation of the whole batch, here always within groups.
- cleanrl's ` + "`charts/episodic_return`" + ` is ` + "`mean_reward`" + `: an episode is one selection or answer.
- ` + "`loss`" + ` of RCE and of GRPO are different quantities: compare ` + "`val_loss`" + ` or, better, ` +
	"`val_reward`" + ` across phases.
`

// elsewhereNames maps our metrics to the names researchers know.
func elsewhereNames() map[string]string {
	return map[string]string{
		"loss":                  "`loss`",
		"grad_norm":             "`grad_norm`",
		"lr":                    "`learning_rate`; `charts/learning_rate` (cleanrl)",
		"ppo_loss":              "`loss/policy_avg` (TRL PPO); `losses/policy_loss` (cleanrl)",
		"kl":                    "`kl`; `objective/kl` (TRL PPO)",
		"kl_beta":               "option `beta`; `objective/kl_coef` (TRL PPO before 0.12)",
		"mean_ratio":            "`val/ratio` (TRL PPO)",
		"clip_fraction":         "`clip_ratio/region_mean` (see below); `policy/clipfrac_avg` (TRL PPO); `losses/clipfrac` (cleanrl)",
		"clip_fraction_low":     "`clip_ratio/low_mean`",
		"clip_fraction_high":    "`clip_ratio/high_mean`",
		"reward_std":            "`reward_std`",
		"reward_<term>":         "`rewards/<term>/mean`",
		"reward_<term>_std":     "`rewards/<term>/std`",
		"completion_length":     "`completions/mean_length`",
		"completion_length_min": "`completions/min_length`",
		"completion_length_max": "`completions/max_length`",
		"truncated_share":       "`completions/clipped_ratio`",
		"entropy":               "`entropy`; `policy/entropy_avg` (TRL PPO); `losses/entropy` (cleanrl)",
		"mean_reward":           "`reward`; `objective/scores` (TRL PPO)",
		"signal_share":          "1 − `frac_reward_zero_std`",
		"step_seconds":          "`step_time`",
		"val_loss":              "`eval_loss` (HF Trainer)",
		"val_reward":            "`eval_reward`",
		"val_kl":                "`eval_kl`",
		"val_reward_<term>":     "`eval_rewards/<term>/mean`",
		"val_completion_length": "`eval_completions/mean_length`",
		"val_truncated_share":   "`eval_completions/clipped_ratio`",
		"tokens":                "`num_tokens` counts on over the run, prompts included",
	}
}
