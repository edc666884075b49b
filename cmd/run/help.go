package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"fulcrum/configs"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
)

// helpWidth is the width that every help text keeps to.
const helpWidth = 80

// helpName is the command that prints help.
const helpName = "help"

// examples are what a new user types, with what it does.
func examples() [][2]string {
	return [][2]string{
		{"exp=okvqa_v3", "train on built-in data"},
		{"data=beams data.beams=F data.embeddings=F", "on your own data"},
		{"exp=okvqa_v3 grpo.lr=1e-4 seed=1", "change settings"},
		{"-m exp=okvqa_v3 seed=0,1,2", "sweep: one run a value"},
		{"ask exp=okvqa_v3 grpo.lr=1e-5,1e-4", "is a change better or worse?"},
		{"exp=okvqa_v3 dry_run=true", "check, train nothing"},
		{"data inspect FILE", "what a file of data holds"},
		{"status DIR", "how far a run or a sweep is"},
		{"resume DIR", "go on after Ctrl-C"},
		{"report DIR DIR", "compare two runs"},
		{"diff DIR DIR", "settings that differ"},
		{"exp=okvqa_v3 --cfg job", "the whole configuration"},
		{explainName + " task", "what else a run can do"},
	}
}

// overview is what the program prints where it was told nothing: examples, then the commands.
func (s *session) overview() string {
	var b strings.Builder
	name := program.Name()
	b.WriteString("Train policies with SFT, RCE and GRPO, and tell whether they got better.\n\n")
	longest := 0
	shown := slices.DeleteFunc(examples(), func(e [2]string) bool { return s.lacks(strings.Fields(e[0])[0]) })
	for _, e := range shown {
		longest = max(longest, len(e[0]))
	}
	for _, e := range shown {
		fmt.Fprintf(&b, "  %s %-*s  # %s\n", name, longest, e[0], e[1])
	}
	listed := map[string]bool{}
	for _, group := range commandGroups() {
		fmt.Fprintf(&b, "\n%s:\n", group.title)
		for _, c := range group.commands {
			if s.lacks(c.name) {
				continue
			}
			fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.does)
			listed[c.name] = true
		}
	}
	others := slices.DeleteFunc(s.verbs.Names(), func(name string) bool { return listed[name] })
	if len(others) > 0 {
		fmt.Fprintf(&b, "\nOthers: %s\n", strings.Join(others, ", "))
	}
	fmt.Fprintf(&b, "\n`%[1]s help COMMAND` says more of one, `%[1]s help WORD` what there is about a word; "+
		"`%[1]s --help` lists flags and groups.\n", name)
	return folded(b.String())
}

// help is what --help prints of our own configuration: examples and commands, flags, then groups.
func (s *session) help(c *configs.Composed) (string, error) {
	groups, err := c.Groups()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(s.overview())
	b.WriteString("\nFlags (as Hydra's):\n" + flagList() + "\nGroups, chosen by GROUP=OPTION:\n")
	for _, g := range groups {
		fmt.Fprintf(&b, "  %-15s %s\n", g.Name, strings.Join(g.Options, ", "))
	}
	name := program.Name()
	fmt.Fprintf(&b, "\nEvery key can be set, KEY=VALUE. `%[1]s --cfg job` prints them all, with groups and\noverrides applied; "+
		"`%[1]s explain KEY` says what one means.\n", name)
	return folded(b.String()), nil
}

// flagList is a line for each flag of a run.
func flagList() string {
	var b strings.Builder
	flagSet(&invocation{}).VisitAll(func(f *pflag.Flag) {
		if "--"+f.Name == experimentalRerun {
			return
		}
		names := namesOf(f)
		slices.Reverse(names)
		text, _, _ := strings.Cut(f.Usage, " (short:")
		fmt.Fprintf(&b, "  %-23s  %s\n", strings.Join(names, ", "), text)
	})
	return b.String()
}

// helpOf prints the help of a command, or the overview; of other words, what there is about them.
func (s *session) helpOf(args []string) error {
	about := strings.TrimSpace(strings.Join(args, " "))
	switch {
	case about == "" || about == helpName:
		return s.write(s.overview(), nil)
	case s.isVerb(args[0]):
		return s.verb(args[0], []string{"--help"})
	}
	return s.search(about)
}

// folded breaks the lines of a help text that are wider than helpWidth. Lines of prose that follow each other are one
// paragraph; a line in columns goes on below its last column.
func folded(text string) string {
	var b strings.Builder
	var prose []string
	flush := func() {
		if len(prose) > 0 {
			b.WriteString(stdout.Fold(strings.Join(prose, " "), helpWidth, 0) + "\n")
			prose = nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		isProse := line != "" && line[0] != ' ' && !strings.HasPrefix(line, program.Name()+" ") && !strings.HasPrefix(line, "run ")
		if isProse {
			if prose = append(prose, line); strings.HasSuffix(line, ":") && !strings.Contains(line, " ") {
				flush()
			}
			continue
		}
		flush()
		b.WriteString(stdout.Fold(line, helpWidth, columnOf(line)) + "\n")
	}
	flush()
	return b.String()
}

// columnOf is where the text of a line in columns goes on: below its last column, else four places in.
func columnOf(line string) int {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if at := strings.LastIndex(strings.TrimRight(line, " "), "  "); at >= indent && at+2 <= helpWidth/2 {
		return utf8.RuneCountInString(line[:at+2])
	}
	return indent + 4
}

// calledAs puts name for run where a command follows in a help text.
func calledAs(message, name string, verbs []string) string {
	commands := regexp.MustCompile(`(^|[\s(` + "`" + `])run (` + strings.Join(verbs, "|") + `|--?[a-z]|[a-z_/.]+=)`)
	return commands.ReplaceAllStringFunc(message, func(found string) string {
		at := strings.Index(found, "run ")
		return found[:at] + name + found[at+len("run"):]
	})
}
