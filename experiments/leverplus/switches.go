package leverplus

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// Switches are those of the Python reference's main, in its order, and two for a first try of a command line
// (docs/lever_plus.md).
func Switches() []Argument {
	modes := []string{"hard_plus_soft", "hard_plus_soft_v2", "separated", "hard_only", "soft_only", "hard01_plus_gtprob",
		"hard01_plus_gtprob_separated", "hard_plus_gtprob_plus_rel", "hybrid", "legacy"}
	return []Argument{
		{Name: "sft_ckpt", Key: "init.checkpoint", help: "initial weights; none: random"},
		{Name: "beam_data", Key: "data.beams", Required: true, help: "beam file, legacy or RL"},
		{Name: "output_dir", Key: "hydra.run.dir", Initial: "results/grpo", help: "the run folder"},
		{Name: "img_emb", Key: "data.embeddings", help: "embedding table"},
		{Name: "text_emb", help: "no effect, as in the reference"},
		{Name: "rce_epochs", Key: "rce.epochs", Kind: Integer, Initial: "5"},
		{Name: "grpo_epochs", Key: "grpo.epochs", Kind: Integer, Initial: "0"},
		{Name: "batch_size", Key: "data.batch_size", Kind: Integer, Initial: "32", help: "RL files: always 1"},
		{Name: "rce_lr", Key: "rce.lr", Kind: Float, Initial: "1e-4"},
		{Name: "rce_temp_start", Key: "rce.temperature.start", Kind: Float, Initial: "2.0"},
		{Name: "rce_temp_end", Key: "rce.temperature.end", Kind: Float, Initial: "0.5"},
		{Name: "grpo_lr", Key: "grpo.lr", Kind: Float, Initial: "1e-5"},
		{Name: "kl_beta", Key: "grpo.kl.beta", Kind: Float, Initial: "0.1"},
		{Name: "disable_adaptive_kl", Key: "grpo.kl.controller", Kind: Flag, Value: "fixed"},
		{Name: "use_ppo_clip_only", Key: "grpo.loss", Kind: Flag, Value: "ppo_clip"},
		{Name: "clip_epsilon", Key: "grpo.clip.epsilon", Kind: Float, Initial: "0.2"},
		{Name: "device", Key: "device", Initial: "cuda:0", help: "falls back to cpu"},
		{Name: "use_top1_only", Key: "rce.top1_only", Kind: Flag, Value: "true"},
		{Name: "reward_mode", Key: "data.reward.mode", choices: modes, Initial: "hard_plus_soft"},
		{Name: "hard_weight", Key: "data.reward.hard_weight", Kind: Float, Initial: "1.0"},
		{Name: "soft_weight", Key: "data.reward.soft_weight", Kind: Float, Initial: "1.0"},
		{Name: "rel_weight", Key: "data.reward.rel_weight", Kind: Float, Initial: "0.1"},
		{Name: "reward_alpha", Key: "data.reward.alpha", Kind: Float, Initial: "0.0"},
		{Name: "reward_beta", Key: "data.reward.beta", Kind: Float, Initial: "0.0"},
		{Name: "reward_correctness_mode", Key: "data.reward.correctness_mode", choices: []string{"01", "pm1"}, Initial: "01"},
		{Name: "use_logprob", Key: "data.reward.use_logprob", Kind: Flag, Value: "true"},
		{Name: "num_layers", Key: "selector.num_layers", Kind: Integer, Initial: "1"},
		{Name: "rce_use_raw_reward", Key: "rce.rewards", Kind: Flag, Value: "raw"},
		{Name: "rce_use_normalized_reward", Kind: Flag, help: "the default behaviour: no effect"},
		{Name: "freeze_backbone_in_grpo", Key: "grpo.freeze", Kind: Flag, Value: "[input_proj,query_proj,cand_proj]"},
		{Name: "no_skip_fallback_reward", Key: "data.skip_fallback", Kind: Flag, Value: "false"},
		{Name: "require_positive_query", Key: "data.require_positive_query", Kind: Flag, Value: "true"},
		{Name: "normalize_method", Key: "data.normalize.method", choices: []string{"z_score", "z_score_clamp", "rank_normalize"},
			Initial: "z_score_clamp"},
		{Name: "normalize_clamp_value", Key: "data.normalize.clamp", Kind: Float, Initial: "3.0"},
		{Name: "candidate_size", Kind: Integer, help: "no effect, as in the reference"},
		{Name: "max_samples", Key: "data.max_samples", Kind: Integer, Initial: "null", help: "train on the first so many training queries"},
		{Name: "dry_run", Key: "dry_run", Kind: Flag, Value: "true", help: "check everything that can be checked without training"},
	}
}

// Overrides returns the overrides that the given switches mean, and what is worth knowing about
// them. Switches that were not given have the reference's defaults, which are those of the experiment.
func Overrides(values map[string]string) (overrides, notices []string, err error) {
	note := func(format string, args ...any) { notices = append(notices, fmt.Sprintf(format, args...)) }
	if values["reward_mode"] == "hybrid" {
		return nil, nil, usage.Errorf("lever-plus: --reward_mode hybrid is accepted by the reference's command line and fails when it " +
			"trains: want another mode")
	}
	if values["beam_data"] == "" {
		return nil, nil, usage.Errorf("lever-plus: the following arguments are required: --beam_data")
	}
	if values["img_emb"] == "" {
		return nil, nil, usage.Errorf("lever-plus: --img_emb FILE is needed: the embedding table")
	}
	format, err := beamdata.FormatOf(values["beam_data"])
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the run says so
		return nil, nil, fmt.Errorf("--beam_data: %w", err)
	}
	if format == "rl" {
		if batch, given := values["batch_size"]; given && batch != "1" {
			note("RL beam files always train with batches of 1, as in the reference: --batch_size %s has no effect", batch)
		}
		values["batch_size"] = "1"
	}
	overrides = []string{"exp=lever_plus_compat"}
	for _, s := range Switches() {
		value, given := values[s.Name]
		switch {
		case s.Name == "output_dir" && !given:
			value = s.Initial
		case s.Name == "device":
			device, notice := torchDevice(value, given)
			if notice != "" {
				note("%s", notice)
			}
			value = device
		case !given:
			continue
		case s.Key == "":
			note("--%s has no effect in the reference, and none here", s.Name)
			continue
		case s.Name == "sft_ckpt" && value == "":
			continue // falsy: random weights
		case s.Kind == Flag:
			value = s.Value
		}
		overrides = append(overrides, s.Key+"="+OverrideValue(s, value))
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

// OverrideValue spells a value in the override grammar.
func OverrideValue(s Argument, value string) string {
	if s.Kind != Text || plainText(value) {
		return value
	}
	return configs.Quote(value)
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

// Help returns what -h prints.
func Help() string {
	var b strings.Builder
	b.WriteString("run lever-plus --beam_data beams.json --img_emb emb.pt --sft_ckpt sft.ckpt --output_dir results/grpo --grpo_epochs 5 " +
		"[key=value …]\n\n" +
		"The Python reference's own switches: prints the overrides that they mean, and runs them. Further overrides may\n" +
		"follow (selector.num_heads=8 data.legacy_pool=gathered).\n\n")
	for _, s := range Switches() {
		value := ""
		switch {
		case s.choices != nil:
			value = " " + strings.Join(s.choices, "|")
		case s.Kind != Flag:
			value = " " + strings.ToUpper(s.Name)
		}
		help := s.help
		if s.Key != "" {
			key := s.Key
			if s.Kind == Flag {
				key += "=" + s.Value
			}
			help = strings.TrimSuffix(key+": "+help, ": ")
		}
		if s.Initial != "" {
			help += " [" + s.Initial + "]"
		}
		fmt.Fprintf(&b, "  --%s%s\n        %s\n", s.Name, value, help)
	}
	return b.String()
}
