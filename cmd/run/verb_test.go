//go:build !core

package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"fulcrum/internal/registry"
	"fulcrum/internal/testkit/golden"
)

// Every verb says how it is called, names its flags there, and refuses one that it does not have.
func TestEveryVerb(t *testing.T) {
	table := sessionOf(fakeApp{}, nil, nil).verbs
	if names := table.Names(); len(names) < 13 {
		t.Fatalf("%d verbs: %v", len(names), names)
	}
	for _, name := range table.Names() {
		t.Run(name, func(t *testing.T) {
			make, err := table.Get(name)
			if err != nil {
				t.Fatal(err)
			}
			usage := folded(make().usage)
			if !strings.Contains(usage, "run "+name) || !strings.HasSuffix(usage, "\n") {
				t.Errorf("usage: %q", usage)
			}
			for _, args := range [][]string{{name, "--help"}, {name, "-h"}, {"--help", name}, {name, "a", "--help"}} {
				var out, errOut bytes.Buffer
				if err := sessionOf(fakeApp{}, &out, &errOut).call(args); err != nil || out.String() != usage || errOut.Len() > 0 {
					t.Errorf("run %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errOut.String())
				}
			}
			if flags := make().flags; flags != nil {
				flags.VisitAll(func(f *pflag.Flag) {
					if !f.Hidden && !strings.Contains(usage, "--"+f.Name) {
						t.Errorf("the usage does not name --%s:\n%s", f.Name, usage)
					}
				})
			}
			var out bytes.Buffer
			err = sessionOf(fakeApp{}, &out, &out).call([]string{name, "--no-such-flag"})
			coded, ok := err.(interface{ ExitCode() int })
			if !ok || coded.ExitCode() != 2 || !strings.Contains(err.Error(), "--no-such-flag") {
				t.Errorf("an unknown flag: %v", err)
			}
			if got := sessionOf(fakeApp{}, nil, nil).candidates("run " + name); !strings.Contains(" "+strings.Join(got, " ")+" ", " "+name+" ") {
				t.Errorf("completion of run %s: %v", name, got)
			}
		})
	}
}

// Completion knows a verb's words and flags.
func TestVerbCompletion(t *testing.T) {
	for line, want := range map[string]string{"run toy ": "hello world", "run toy w": "world", "run toy --l": "--loud",
		"run toy --": "--help --loud"} {
		if got := strings.Join(sessionOf(fakeApp{}, nil, nil).candidates(line), " "); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// commandsPage is docs/commands.md: what every verb says to --help.
func commandsPage(table *registry.Table[newVerb]) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n<!-- Generated: go test ./cmd/run -run TestCommandsPage -update. Edit the verbs, not this page. -->\n\n" +
		"`run` with overrides alone trains, evaluates or predicts ([configuration](configuration.md)); `run --hydra-help` lists " +
		"Hydra's flags.\n" +
		"Each command below answers `run COMMAND --help` with this text, lever-plus with its switches too ([lever_plus](lever_plus.md)).\n" +
		"`run help WORD` searches commands, keys, options, metrics, findings, errors and pages; a command's name wins.\n")
	for _, name := range table.Names() {
		if make, err := table.Get(name); err == nil {
			usage, _, _ := strings.Cut(make().usage, "\n\n  --") // what follows is a table of another page
			fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", name, strings.TrimRight(folded(usage), "\n"))
		}
	}
	return b.String()
}

func TestCommandsPageIsCurrent(t *testing.T) {
	golden.File(t, filepath.Join(golden.RepoRoot(), "docs", "commands.md"), []byte(commandsPage(verbs(annexes().verbs))))
	if page := commandsPage(sessionOf(fakeApp{}, nil, nil).verbs); !strings.Contains(page, "## toy\n\n```text\nrun toy [--loud] WORD…\n") {
		t.Error("the page leaves a verb out")
	}
}
