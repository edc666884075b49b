//go:build !core

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"fulcrum/configs"
	"fulcrum/internal/testkit/golden"
)

// Without arguments and with help alone the program says what to type, and starts nothing. Every example composes, every
// command is listed, and no line of any help is wider than a terminal.
func TestHelp(t *testing.T) {
	says := func(args ...string) string {
		var out, errOut bytes.Buffer
		if err := sessionOf(fakeApp{}, &out, &errOut).call(args); err != nil || errOut.Len() > 0 {
			t.Errorf("run %s: %v %s", strings.Join(args, " "), err, errOut.String())
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(line) - 1; n > helpWidth {
				t.Errorf("run %s: a line of %d columns: %s", strings.Join(args, " "), n, line)
			}
		}
		return out.String()
	}
	nothing := says()
	if nothing != says("help") || !strings.Contains(nothing, "  run exp=okvqa_v3 ") {
		t.Errorf("run says\n%s", nothing)
	}
	full := says("--help")
	for _, want := range []string{nothing, "\nFlags ", "  -m, --multirun ", "\nGroups, ", "  exp             ", "--cfg job"} {
		at := strings.Index(full, want)
		if at < 0 {
			t.Errorf("run --help lacks %q:\n%s", want, full)
		} else {
			full = full[at:] // in this order
		}
	}
	if strings.Contains(full, "batch_size") {
		t.Error("run --help prints the configuration")
	}
	listed := map[string]bool{}
	for _, group := range commandGroups() {
		for _, c := range group.commands {
			listed[c.name] = true
		}
	}
	for name := range listed {
		if _, err := verbs(annexes().verbs).Get(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range verbs(annexes().verbs).Names() {
		if !listed[name] {
			t.Errorf("run --help does not say what %s does", name)
		}
		example, _, _ := strings.Cut(says("help", name), "\n")
		if !strings.HasPrefix(example+" ", "run "+name+" ") || strings.ContainsAny(example, "[|…") {
			t.Errorf("run help %s begins with %q, want an example", name, example)
		}
	}
	schema, err := annexes().app.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples() {
		words := strings.Fields(strings.NewReplacer(" --cfg job", "", "-m ", "").Replace(e[0]))
		if slices.Contains(verbs(annexes().verbs).Names(), words[0]) {
			continue
		}
		req := configs.Request{Library: configs.Library(), Schema: schema, Overrides: words, Multirun: strings.HasPrefix(e[0], "-m"),
			AppName: "run"}
		if _, err := configs.Compose(req); err != nil {
			t.Errorf("run %s: %v", e[0], err)
		}
	}
}

// run help finds commands, keys, options, metrics, findings, errors and pages, the best first, on a screen; what it does not find it
// suggests.
func TestHelpSearches(t *testing.T) {
	schema, err := annexes().app.Schema()
	if err != nil {
		t.Fatal(err)
	}
	help := func(words ...string) (string, error) {
		var out bytes.Buffer
		err := sessionOf(fakeApp{schema: schema}, &out, &out).call(append([]string{"help"}, words...))
		return out.String(), err
	}
	for about, want := range map[string][]string{ // lines, in this order
		"kl":            {"Metrics: docs/metrics.md (", "  kl ", "Keys: `run explain KEY` (", "  grpo.kl.", "Pages ("},
		"beta":          {"Keys: `run explain KEY`", "  grpo.kl.beta "},
		"okvqa_v3":      {"Options of groups: `run GROUP=OPTION --cfg job`", "  exp=okvqa_v3              RCE warm-up, "},
		"no_signal":     {"Findings in training: docs/doctor.md#checks", "  no_signal "},
		"round_trip":    {"Findings before training: docs/preflight.md", "  round_trip "},
		"kl beta":       {"Keys: `run explain KEY`", "  grpo.kl.beta "},
		"Sealed":        {"Pages", "  docs/data.md#sealed-questions "},
		"sealed claim":  {"Commands: `run help NAME`", "  open-test                 score sealed questions, once, for a claim"},
		"temperatures":  nil,
		"reprot":        nil,
		"grpo.kl.betta": nil,
		"b.json: query 3: the query id is outside the embedding table of 9 rows": {"Errors: docs/errors.md", "  is outside the embedding "},
	} {
		said, err := help(strings.Split(about, " ")...)
		if n := strings.Count(said, "\n"); want == nil != (err != nil) || n > helpLines {
			t.Errorf("help %s: %d lines, %v", about, n, err)
		}
		for line := range strings.Lines(said) {
			if n := utf8.RuneCountInString(line) - 1; n > helpWidth {
				t.Errorf("help %s: a line of %d columns: %s", about, n, line)
			}
		}
		rest := "\n" + said
		for _, line := range want {
			at := strings.Index(rest, "\n"+line)
			if at < 0 {
				t.Errorf("help %s lacks %q, or it stands elsewhere:\n%s", about, line, said)
				break
			}
			rest = rest[at+1:]
		}
	}
	for about, want := range map[string]string{"reprot": "(did you mean report", "grpo.kl.betta": "(did you mean grpo.kl.beta",
		"no_singal": "(did you mean no_signal"} {
		if _, err := help(about); exitCode(t.Context(), err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("help %s: %v", about, err)
		}
	}
	short, _ := help("kl")
	if whole, err := help("--all", "kl"); err != nil || !strings.HasSuffix(short, "All of it, uncut: `run help --all kl`\n") ||
		strings.Contains(whole, "…\n") || strings.Contains(whole, " of ") && strings.Contains(whole, ") (") ||
		strings.Count(whole, "\n  grpo.kl.") < 8 || strings.Contains(whole, "--all") {
		t.Errorf("help --all kl: %v\n%s\nhelp kl:\n%s", err, whole, short)
	}
	if said, err := help("data"); err != nil || !strings.HasPrefix(said, "run data inspect ") {
		t.Errorf("help data is not the command's: %v\n%s", err, said)
	}
}

// Commands in help texts name the program as it was called; prose does not change.
func TestCommandsCanBePasted(t *testing.T) {
	verbs := []string{"resume", "report"}
	for message, want := range map[string]string{
		"go on with:  run resume DIR":                  "go on with:  bin/run resume DIR",
		"(run --rerun DIR) or run exp=x; run -m a=1,2": "(bin/run --rerun DIR) or bin/run exp=x; bin/run -m a=1,2",
		"the run goes on; a dry-run report":            "the run goes on; a dry-run report",
		"run resume: x":                                "bin/run resume: x",
	} {
		if got := calledAs(message, "bin/run", verbs); got != want {
			t.Errorf("%q becomes %q, want %q", message, got, want)
		}
	}
}

// Paragraphs are filled, columns go on below themselves.
func TestFolded(t *testing.T) {
	golden.File(t, "testdata/folded.txt", []byte(folded("run x "+strings.Repeat("[--flag WORD] ", 8)+"\nA sentence that is\n"+
		"broken early, and goes on for a while so that it must be broken once more, here.\n\nwords:\n  one   two "+
		strings.Repeat("three ", 20)+"\n  "+strings.Repeat("x", 90)+" y\n")))
}
