//go:build !core

package tasks

import (
	"errors"
	"slices"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/reports/record"
)

// ICLOptions configures task=icl: the whole loop, from questions to answers with examples that a selector chose.
type ICLOptions struct {
	// folder of finished stages, which jobs share; null = stages in the run folder
	Stages *string `koanf:"stages"`
	// experiment that trains the vision-language model where lvlm.path is null
	Model *string `koanf:"model"`
	// models that are compared, each with its own beams and selectors, as lvlm.path (of a server: lvlm.model) names
	// them; empty = that of lvlm
	Models []string `koanf:"models"`
	// selections without training that are compared, as infer.method names them; the first one is what the others are measured
	// against; shuffled: before one = infer.answer=shuffled
	Baselines []string `koanf:"baselines"`
	// schedules of the selectors that are compared, their phases joined by +; placebo: before one trains it with control=placebo,
	// shuffled: too
	Selectors []string `koanf:"selectors"`
	// each selector is trained with so many seeds, from seed on
	Seeds int `koanf:"seeds" range:"[1,1000]"`
	// a selector's checkpoint that chooses: best by the true rewards of its validation queries, or last
	Checkpoint string `koanf:"checkpoint" enum:"best,last"`
	// how many held-out questions are asked, drawn once for all methods; null = all
	Questions *int `koanf:"questions" range:"[1,inf)"`
	// numbers of examples in a prompt; selectors choose beams.shots of them
	Shots []int `koanf:"shots"`
}

// DefaultICLOptions compares everything with two examples.
func DefaultICLOptions() ICLOptions {
	return ICLOptions{Baselines: []string{"image", "random", "oracle"}, Selectors: []string{"sft", "rce", "rce+grpo"}, Seeds: 1,
		Checkpoint: "best",
		Shots:      []int{2}}
}

// shuffled begins the name of a method whose examples show other examples' answers.
const shuffled = "shuffled:"

// answering returns the override by which a method's examples show others' answers, where its name says so, and the name of what chooses.
func answering(method string) (chooser string, args []string) {
	chooser, swap := strings.CutPrefix(method, shuffled)
	if swap {
		args = []string{"infer.answer=shuffled"}
	}
	return chooser, args
}

// Schedule returns the phases of a selector and what its rewards are subject to.
func (ICLOptions) Schedule(selector string) (phases []string, control string) {
	name, permuted := strings.CutPrefix(selector, record.Placebo)
	if permuted {
		return strings.Split(name, "+"), "placebo"
	}
	return strings.Split(name, "+"), "none"
}

// bestBeam reports whether what the search finds for held-out questions is compared.
func (o ICLOptions) bestBeam() bool {
	return slices.ContainsFunc(o.Baselines, func(b string) bool { return strings.HasSuffix(b, "best_beam") })
}

func (o ICLOptions) Validate() error {
	errs := []error{option.Want(len(o.Shots) > 0 && slices.Min(o.Shots) >= 1 && slices.Max(o.Shots) <= 16, "shots",
		"want numbers of 1 to 16, got %v", o.Shots),
		option.Want(len(o.Baselines) > 0, "baselines", "want one at least, to measure the others against")}
	for i, m := range o.Models {
		errs = append(errs, option.Want(!slices.Contains(o.Models[:i], m), "models", "%s stands twice", m))
	}
	for _, b := range o.Baselines {
		method, _ := strings.CutPrefix(b, shuffled)
		errs = append(errs, option.OneOf("baselines", method, "image", "text", "mmr", "random", "best_beam", "oracle", "none"))
	}
	for _, s := range o.Selectors {
		name, _ := strings.CutPrefix(s, shuffled)
		phases, _ := o.Schedule(name)
		for _, phase := range phases {
			errs = append(errs, option.Want(slices.Contains([]string{"sft", "rce", "grpo", "grpo_online"}, phase), "selectors",
				"want sft, rce, grpo, grpo_online, or several joined by +, as rce+grpo (placebo:rce+grpo permutes the rewards), got %q", s))
		}
	}
	return errors.Join(errs...)
}
