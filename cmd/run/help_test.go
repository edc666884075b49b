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
	var out bytes.Buffer
	err := sessionOf(fakeApp{}, &out, &out).call([]string{"help", "reprot"})
	if exitCode(t.Context(), err) != 2 || !strings.Contains(err.Error(), "did you mean report?") {
		t.Errorf("help of a command that there is not: %v", err)
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
