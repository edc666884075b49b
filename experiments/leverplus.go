package experiments

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/internal/stdout"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// switches are those of the Python reference's main, in its order, and two for a first try of a command line
// (docs/lever_plus.md).
func switches() []argument {
	modes := []string{"hard_plus_soft", "hard_plus_soft_v2", "separated", "hard_only", "soft_only", "hard01_plus_gtprob",
		"hard01_plus_gtprob_separated", "hard_plus_gtprob_plus_rel", "hybrid", "legacy"}
	return []argument{
		{name: "sft_ckpt", key: "init.checkpoint", help: "initial weights; none: random"},
		{name: "beam_data", key: "data.beams", required: true, help: "beam file, legacy or RL"},
		{name: "output_dir", key: "hydra.run.dir", initial: "results/grpo", help: "the run folder"},
		{name: "img_emb", key: "data.embeddings", help: "embedding table"},
		{name: "text_emb", help: "no effect, as in the reference"},
		{name: "rce_epochs", key: "rce.epochs", kind: integer, initial: "5"},
		{name: "grpo_epochs", key: "grpo.epochs", kind: integer, initial: "0"},
		{name: "batch_size", key: "data.batch_size", kind: integer, initial: "32", help: "RL files: always 1"},
		{name: "rce_lr", key: "rce.lr", kind: float, initial: "1e-4"},
		{name: "rce_temp_start", key: "rce.temperature.start", kind: float, initial: "2.0"},
		{name: "rce_temp_end", key: "rce.temperature.end", kind: float, initial: "0.5"},
		{name: "grpo_lr", key: "grpo.lr", kind: float, initial: "1e-5"},
		{name: "kl_beta", key: "grpo.kl.beta", kind: float, initial: "0.1"},
		{name: "disable_adaptive_kl", key: "grpo.kl.controller", kind: flag, value: "fixed"},
		{name: "use_ppo_clip_only", key: "grpo.loss", kind: flag, value: "ppo_clip"},
		{name: "clip_epsilon", key: "grpo.clip.epsilon", kind: float, initial: "0.2"},
		{name: "device", key: "device", initial: "cuda:0", help: "falls back to cpu"},
		{name: "use_top1_only", key: "rce.top1_only", kind: flag, value: "true"},
		{name: "reward_mode", key: "data.reward.mode", choices: modes, initial: "hard_plus_soft"},
		{name: "hard_weight", key: "data.reward.hard_weight", kind: float, initial: "1.0"},
		{name: "soft_weight", key: "data.reward.soft_weight", kind: float, initial: "1.0"},
		{name: "rel_weight", key: "data.reward.rel_weight", kind: float, initial: "0.1"},
		{name: "reward_alpha", key: "data.reward.alpha", kind: float, initial: "0.0"},
		{name: "reward_beta", key: "data.reward.beta", kind: float, initial: "0.0"},
		{name: "reward_correctness_mode", key: "data.reward.correctness_mode", choices: []string{"01", "pm1"}, initial: "01"},
		{name: "use_logprob", key: "data.reward.use_logprob", kind: flag, value: "true"},
		{name: "num_layers", key: "selector.num_layers", kind: integer, initial: "1"},
		{name: "rce_use_raw_reward", key: "rce.rewards", kind: flag, value: "raw"},
		{name: "rce_use_normalized_reward", kind: flag, help: "the default behaviour: no effect"},
		{name: "freeze_backbone_in_grpo", key: "grpo.freeze", kind: flag, value: "[input_proj,query_proj,cand_proj]"},
		{name: "no_skip_fallback_reward", key: "data.skip_fallback", kind: flag, value: "false"},
		{name: "require_positive_query", key: "data.require_positive_query", kind: flag, value: "true"},
		{name: "normalize_method", key: "data.normalize.method", choices: []string{"z_score", "z_score_clamp", "rank_normalize"}, initial: "z_score_clamp"},
		{name: "normalize_clamp_value", key: "data.normalize.clamp", kind: float, initial: "3.0"},
		{name: "candidate_size", kind: integer, help: "no effect, as in the reference"},
		{name: "max_samples", key: "data.max_samples", kind: integer, initial: "null", help: "train on the first so many training queries"},
		{name: "dry_run", key: "dry_run", kind: flag, value: "true", help: "check everything that can be checked without training"},
	}
}

// verbLeverPlus runs exp=lever_plus_compat as the Python reference's command line asks.
func verbLeverPlus(ctx context.Context, a App, args []string) error {
	values, rest, err := parseSwitches(switches(), args)
	if err != nil {
		return usage.Errorf("lever-plus: %v", err)
	}
	if values == nil {
		stdout.Print(leverPlusHelp())
		return nil
	}
	overrides, notices, err := leverPlusOverrides(values)
	if err != nil {
		return err
	}
	for _, arg := range rest {
		if !strings.Contains(arg, "=") && !strings.HasPrefix(arg, "~") {
			return usage.Errorf("lever-plus: %q is neither a switch of the reference nor an override key=value", arg)
		}
	}
	schema, err := a.Schema()
	if err != nil {
		return err
	}
	overrides = append(overrides, rest...)
	c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: overrides, Now: time.Now(), AppName: "run",
		Warn: func(message string) { fmt.Fprintln(os.Stderr, "warning: "+message) }})
	if err != nil {
		return err
	}
	for _, notice := range notices {
		fmt.Fprintln(os.Stderr, "lever-plus: "+notice)
	}
	stdout.Println(shellLine(append([]string{"run"}, overrides...)))
	return a.Run(ctx, c)
}

// leverPlusOverrides returns the overrides that the given switches mean, and what is worth knowing about
// them. Switches that were not given have the reference's defaults, which are those of the experiment.
func leverPlusOverrides(values map[string]string) (overrides, notices []string, err error) {
	note := func(format string, args ...any) { notices = append(notices, fmt.Sprintf(format, args...)) }
	if values["reward_mode"] == "hybrid" {
		return nil, nil, usage.Errorf("lever-plus: --reward_mode hybrid is accepted by the reference's command line and fails when it trains: want another mode")
	}
	if values["img_emb"] == "" {
		return nil, nil, usage.Errorf("lever-plus: --img_emb FILE is needed: the embedding table")
	}
	format, err := beamdata.FormatOf(values["beam_data"])
	if err != nil {
		return nil, nil, fmt.Errorf("--beam_data: %w", err)
	}
	if format == "rl" {
		if batch, given := values["batch_size"]; given && batch != "1" {
			note("RL beam files always train with batches of 1, as in the reference: --batch_size %s has no effect", batch)
		}
		values["batch_size"] = "1"
	}
	overrides = []string{"exp=lever_plus_compat"}
	for _, s := range switches() {
		value, given := values[s.name]
		switch {
		case s.name == "output_dir" && !given:
			value = s.initial
		case s.name == "device":
			device, notice := torchDevice(value, given)
			if notice != "" {
				note("%s", notice)
			}
			value = device
		case !given:
			continue
		case s.key == "":
			note("--%s has no effect in the reference, and none here", s.name)
			continue
		case s.name == "sft_ckpt" && value == "":
			continue // falsy: random weights
		case s.kind == flag:
			value = s.value
		}
		overrides = append(overrides, s.key+"="+overrideValue(s, value))
	}
	return overrides, notices, nil
}

// torchDevice is --device: cuda:0 unless given, and the CPU where that cannot be had.
func torchDevice(value string, given bool) (device, notice string) {
	if !given {
		value = "cuda:0"
	}
	switch {
	case strings.HasPrefix(value, "cpu"): // cpu:0
		return "cpu", ""
	case !strings.HasPrefix(value, "cuda"):
		return value, ""
	}
	if err := torchx.Load(); err == nil && torchx.CUDAAvailable() {
		return value, ""
	}
	return "cpu", fmt.Sprintf("device %s is not available: cpu", value)
}

// overrideValue spells a value in the override grammar.
func overrideValue(s argument, value string) string {
	if s.kind != text || plainText(value) {
		return value
	}
	return quoted(value)
}

// plainText reports text that the override grammar takes as it is: no number, bool or null, nothing to quote.
func plainText(s string) bool {
	switch strings.ToLower(s) {
	case "null", "true", "false", "inf", "nan":
		return false
	}
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	return s != "" && (letter(rune(s[0])) || s[0] == '/' || s[0] == '.' && strings.ContainsFunc(s, letter)) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !letter(r) && !(r >= '0' && r <= '9') && !strings.ContainsRune("/._-:", r) })
}

// shellLine quotes argv for a POSIX shell, to be copied.
func shellLine(argv []string) string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$`!*?[]{}()<>|&;#~") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		out[i] = arg
	}
	return strings.Join(out, " ")
}

// leverPlusHelp is what -h prints.
func leverPlusHelp() string {
	var b strings.Builder
	b.WriteString("run lever-plus --beam_data beams.json --img_emb emb.pt --sft_ckpt sft.ckpt --output_dir results/grpo --grpo_epochs 5 [key=value …]\n\n" +
		"The Python reference's own switches: prints the overrides that they mean, and runs them. Further overrides may\n" +
		"follow (selector.num_heads=8 data.legacy_pool=gathered).\n\n")
	for _, s := range switches() {
		value := ""
		switch {
		case s.choices != nil:
			value = " " + strings.Join(s.choices, "|")
		case s.kind != flag:
			value = " " + strings.ToUpper(s.name)
		}
		help := s.help
		if s.key != "" {
			key := s.key
			if s.kind == flag {
				key += "=" + s.value
			}
			help = strings.TrimSuffix(key+": "+help, ": ")
		}
		if s.initial != "" {
			help += " [" + s.initial + "]"
		}
		fmt.Fprintf(&b, "  --%s%s\n        %s\n", s.name, value, help)
	}
	return b.String()
}
