package docs

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"fulcrum/configs"
	"fulcrum/internal/golden"
	"fulcrum/phases/doctor"
)

func TestDoctorPageIsCurrent(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# The signal doctor\n\n" + strings.Replace(generated, "the option structs",
		"phases/doctor and this package", 1) + doctorIntro)
	b.WriteString("| Check | Default | Threshold | Holds that | A finding means | What to do |\n|---|---|---|---|---|---|\n")
	rules := doctorRules(t)
	for _, c := range doctor.Checks() {
		r, ok := rules[c.Name]
		if !ok && c.Name != "nonfinite" {
			t.Errorf("doctor.Checks has %s, which the options do not", c.Name)
		}
		delete(rules, c.Name)
		if c.Name == "nonfinite" {
			r = doctorRule{severity: "stop, always", holds: "rewards, loss and gradient are finite numbers"}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", c.Name, r.severity, r.threshold, r.holds, c.Means, c.Do)
	}
	for name := range rules {
		t.Errorf("doctor.Checks lacks %s", name)
	}
	b.WriteString(doctorNotes)
	golden.File(t, docsPath("doctor.md"), b.Bytes())
}

type doctorRule struct{ severity, threshold, holds string }

// doctorRules reads the defaults of the options, by check.
func doctorRules(t *testing.T) map[string]doctorRule {
	t.Helper()
	rules := map[string]doctorRule{}
	options := doctor.DefaultOptions()
	schema, err := configs.SchemaOf(&options, nil)
	if err != nil {
		t.Fatal(err)
	}
	opt := reflect.ValueOf(options)
	for i := range opt.NumField() {
		tag := opt.Type().Field(i).Tag
		r := doctorRule{holds: schema.Help(tag.Get("koanf"))}
		switch o := opt.Field(i).Interface().(type) {
		case doctor.Switch:
			r.severity = string(o.Severity)
		case doctor.Limit:
			r.severity, r.threshold = string(o.Severity), fmt.Sprint(o.Limit)
		case doctor.Window:
			r.severity, r.threshold = string(o.Severity), fmt.Sprintf("%v over %d steps", o.Limit, o.Steps)
		case doctor.Streak:
			r.severity, r.threshold = string(o.Severity), fmt.Sprintf("%d steps in a row", o.Steps)
		default:
			continue
		}
		rules[tag.Get("koanf")] = r
	}
	return rules
}

const doctorIntro = `A run can fail without an error: rewards that never differ, dropout in the ratio, a coefficient stuck at its
bound. The doctor reads the rows of metrics.jsonl while they are written and says what is wrong in one sentence: the
number, the likely cause, the key to change. A finding goes to

- run.log and stderr,
- metrics.jsonl, as a row of kind ` + "`event`" + ` with ` + "`event` (the check), `severity`, `message`, `key`, `value` and `limit`" + `,
- ` + "`findings` in summary.json" + `, and from there to report.md.

It has three severities. A **note** is good to know, and healthy runs have some. A **warning** wants a person to look
before the result is believed. A **stop** ends the run with exit code 1, because the result would be worthless; the last
saved state stays. Each check speaks once a phase.

    run exp=okvqa_v3 doctor.ratio_clipped.severity=warning      # take it more seriously
    run exp=okvqa_v3 doctor.no_signal.severity=off              # say nothing
    run exp=okvqa_v3 doctor.gradient_spike.limit=5              # another threshold
    run exp=okvqa_v3 doctor.enabled=false

A run that was stopped goes on after ` + "`severity: stop`" + ` is changed in its ` +
	"`.hydra/config.yaml`: `run resume DIR`" + `. The section
` + "`doctor`" + ` is no part of the configuration's hash, because it changes nothing that is computed: checkpoints have the same
bytes with and without it. With ` + "`compat=lever_plus`" + ` nothing is stopped, and a stop is shown as a warning.

The doctor does not trust the code that made a row. What the options promise is computed again: at which steps the old
policy is refreshed (the ratio is then exactly 1), the learning rate and τ of each step, the curriculum's top k, the
clip of the advantages, the loss as the sum of its parts, the surrogate where ratios are 1, the clipping factor, the bounds
of the optimizer's first moment and its age, the queries of an epoch, the mean of the validation scores.

## Checks

"Threshold" is the default of ` + "`limit`" + ` and of ` + "`steps`" + `; PHASE is the phase's section: sft, rce, grpo or grpo_online. In a
phase with fewer steps than that a check speaks at the end; ` + "`no_signal`" + ` is then a warning, since a stop would save nothing.

`

const doctorNotes = `
## NaN and infinity

When a loss or a gradient is not finite, the step is made again with every operation followed, which costs nothing
until then. The error names the first operation whose result was not finite while its inputs were, with their shapes and
the line that called it, or the node of the backward pass:

    run: rce epoch 1 step 1: the loss is NaN: linear([16,6]float32, [6,6]float32, [6]float32) in
    selector/pointer/forward.go:114 ((*Policy).attention) … made the first number that is not finite; the weights
    were left as they were; lower the learning rate or look at the rewards

Infinities that a mask put there on purpose are no origin. A reward that is not a number is named with its query and its
candidate before any loss is computed.

## What it cannot see

The doctor looks at rows. What repeats or fails only now and then (a moment that is reset once while gradients are mostly
noise, a reward that goes to the wrong query in one batch) changes no row beyond what noise does. Nor do a clip range with
its sides swapped, weight decay, the direction of a KL that is small, or a best checkpoint that is not the best one. At batch
size 1, where a curriculum keeps the good candidates alone, ` + "`objective_falls`" + ` says nothing: what a step on one query takes from
the next one's candidates is larger than what it should add.

A log-probability that is wrong in the same way under the policy, the old policy and the
reference has a ratio of 1 and a KL of 0, and images that are shuffled for all queries alike still give rewards. The
preflight looks for such faults before the first step, on the real policy and the real data.
`
