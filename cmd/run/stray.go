package main

import (
	"cmp"
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/configs"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/program"
	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
)

// This file answers words that are neither flags nor overrides: exp okvqa_v3, --seed 3.

// overrides refuses arguments that are neither a verb nor an override.
func (s *session) overrides(req configs.Request) error {
	verbs := s.verbs.Names()
	for i, a := range req.Overrides {
		if i == 0 && s.lacks(a) {
			return notBuiltIn(a, annexVerbs()[a])
		}
		if err := s.misspelt(req.Overrides, i); err != nil && req.ConfigPath == "" {
			return err
		}
		if strings.Contains(a, "=") || strings.HasPrefix(a, "~") {
			continue
		}
		if near, ok := registry.Nearest(a, verbs); ok && i == 0 {
			return usage.Errorf("%q is neither a command nor an override key=value (did you mean %s?)", a, near)
		}
		if before := append([]string{""}, req.Overrides...)[i]; strings.HasSuffix(before, "=") && len(before) > 1 { // grpo.lr= 1e-3
			return usage.Errorf("%q is neither an override key=value nor a command (did you mean %s%s?)", a, before, a)
		}
		if values := numbers(req.Overrides[i:]); i > 0 && len(values) > 0 && strings.Contains(req.Overrides[i-1], "=") { // seed=0 1 2
			return usage.Errorf("%q is neither an override key=value nor a command (did you mean %s,%s? A sweep over them takes -m)", a,
				req.Overrides[i-1], strings.Join(values, ","))
		}
		whole := rejoined(req.Overrides, i)
		if before, _, ok := strings.Cut(whole, " "); ok && strings.Contains(before, "/") {
			return splitAtBlanks(whole)
		}
		a, value := spaced(a, req.Overrides[i+1:])
		if meant := configs.Settings(req, a, value); len(meant) > 0 {
			return usage.Errorf("%q is neither an override key=value nor a command (did you mean %s?)", a, strings.Join(meant, " or "))
		}
		if whole != "" {
			return splitAtBlanks(whole)
		}
		return usage.Errorf("%q is neither an override key=value nor a command: want one of %s", a, strings.Join(verbs, ", "))
	}
	return nil
}

// rejoined is the setting before word at with that word and those behind it; "" where no setting stands before.
func rejoined(words []string, at int) string {
	if at == 0 || !strings.Contains(words[at-1], "=") {
		return ""
	}
	end := at + 1
	for end < len(words) && isWord(words[end]) {
		end++
	}
	return strings.Join(words[at-1:end], " ")
}

// splitAtBlanks says how a setting with blanks in its value is typed.
func splitAtBlanks(whole string) error {
	key, value, _ := strings.Cut(whole, "=")
	return usage.Errorf("%s: the shell splits at blanks (did you mean %s?)", whole, configs.AsTyped(key, value))
}

// joinedPath refuses words that only together are the path of something: a shell has split it.
func joinedPath(args []string) error {
	for i, whole := range args {
		if _, err := os.Stat(whole); err == nil {
			continue
		}
		for _, next := range args[i+1:] {
			whole += " " + next
			if _, err := os.Stat(whole); err == nil {
				return usage.Errorf("%s: the shell splits at blanks (did you mean %s?)", whole, program.Quoted(whole))
			}
		}
	}
	return nil
}

var (
	quotedSettings = regexp.MustCompile(`^[^\s=]+=[^\s='"\[{]+( [^\s=]+=[^\s='"\[{]+)+$`)
	unexpanded     = regexp.MustCompile(`^\$\{?([A-Z_][A-Z0-9_]*)\}?(/|$)`)
	decimalComma   = regexp.MustCompile(`=-?\d+,0\d+$`)
)

// misspelt refuses what a shell or a habit makes of settings and commands, with what was meant.
func (s *session) misspelt(args []string, at int) error {
	a := args[at]
	key, value, isSetting := strings.Cut(a, "=")
	before := ""
	if at > 0 {
		before = args[at-1]
	}
	path := cmp.Or(value, a)
	_, err := os.Stat(path)
	isPath := err == nil && strings.ContainsAny(path, "/.") || runfolder.IsRun(path)
	switch {
	case quotedSettings.MatchString(a):
		return usage.Errorf("%q is one word to the shell: leave out the quotes around it, %s", a, a)
	case strings.HasSuffix(a, ",") && at+1 < len(args) && !strings.Contains(args[at+1], "="), strings.HasSuffix(before, ",") && !isSetting:
		first := at
		for first > 0 && !strings.Contains(args[first], "=") {
			first--
		}
		last := at
		for last+1 < len(args) && !strings.Contains(args[last+1], "=") && strings.HasSuffix(args[last], ",") {
			last++
		}
		return usage.Errorf("%s: the shell splits at the blank behind a comma (did you mean %s?)", strings.Join(args[first:last+1], " "),
			program.Quoted(strings.Join(args[first:last+1], "")))
	case strings.HasSuffix(a, ",") && isSetting:
		return usage.Errorf("%s ends with a comma: blanks stand between settings (did you mean %s?)", a, strings.TrimRight(a, ","))
	case decimalComma.MatchString(a):
		return usage.Errorf("%s: decimals have a point (did you mean %s?)", a, strings.Replace(a, ",", ".", 1))
	case strings.HasPrefix(value, "~/"):
		return usage.Errorf("%s: the shell knows ~ at the beginning of a word alone (did you mean %s=$HOME%s?)", a, key, value[1:])
	case unexpanded.MatchString(value) && os.Getenv(unexpanded.FindStringSubmatch(value)[1]) != "":
		return usage.Errorf("%s: the shell replaces no variable in single quotes (did you mean %s=%s?)", a, key, os.ExpandEnv(value))
	case strings.HasPrefix(a, "—"), strings.HasPrefix(a, "–"), strings.HasPrefix(a, "−"):
		name := strings.TrimLeft(a, "—–−-")
		dashes := "--"
		if len(name) == 1 {
			dashes = "-"
		}
		return usage.Errorf("%q begins with a long dash, not a hyphen (did you mean %s%s?)", a, dashes, name)
	case isSetting && s.isVerb(key) && key != "data" && isPath:
		return usage.Errorf("%s: %s is a command (did you mean %s?)", a, key, program.Command(key, value))
	case !isSetting && at > 0 && s.isVerb(a):
		words := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == a || strings.Contains(arg, "=") })
		return usage.Errorf("%s is a command, which stands before all else (did you mean %s?)", a,
			program.Command(append([]string{a}, words...)...))
	case key == "data" && isSetting && isPath:
		return usage.Errorf("%s: data names a kind of data: take data=beams data.beams=FILE data.embeddings=FILE, or data=okvqa "+
			"data.root=FOLDER; what is in it: %s", a, program.Command("data", "inspect", value))
	case !isSetting && at == 0 && slices.Contains(tasks.Entries(s.annex.app.Bring...).Tasks.Names(), a): // run predict RUN
		task := []string{"task=" + a}
		if len(args) > 1 && runfolder.IsRun(args[1]) {
			task = append(task, "init.checkpoint="+args[1])
		}
		return usage.Errorf("%q is neither a command nor an override key=value (did you mean %s?)", a, program.Command(task...))
	case !isSetting && at == 0 && elsewhere()[a] != "":
		return usage.Errorf("%q is neither a command nor an override key=value (did you mean %s?)", a,
			program.Command(append([]string{elsewhere()[a]}, args[1:]...)...))
	case !isSetting && at == 0 && (a == "stop" || a == "kill" || a == "cancel"):
		return usage.Errorf("%q is no command: Ctrl-C where the run was started, or kill -INT with its process, saves and stops it, as does a "+
			"button of %s", a, program.Command("board"))
	case !isSetting && at == 0 && (a == "rm" || a == "delete" || a == "remove"):
		return usage.Errorf("%q is no command: a run or a sweep is its folder, which rm -r removes", a)
	case !isSetting && runfolder.IsRun(a):
		return usage.Errorf("%s is a run folder: a command stands before it, such as %s or %s", a, program.Command("status", a),
			program.Command("report", a))
	case !isSetting && isPath:
		return usage.Errorf("%s: give a file or folder after a key or a command; to look into it: %s", a, program.Command("data", "inspect", a))
	}
	var meant []string
	for _, name := range s.verbs.Names() {
		if newVerb, err := s.verbs.Get(name); err == nil && at == 0 && slices.Contains(newVerb().words, a) {
			meant = append(meant, program.Command(append([]string{name}, args...)...))
		}
	}
	if len(meant) > 0 {
		return usage.Errorf("%q is neither a command nor an override key=value (did you mean %s?)", a, strings.Join(meant, " or "))
	}
	return nil
}

// elsewhere are commands of other programs, and ours that does the same.
func elsewhere() map[string]string {
	return map[string]string{"compare": "report", "plot": "report", "plots": "report", "show": "report", "summary": "report",
		"list": "ls", "history": "ls", "runs": "ls", "best": "ls", "tail": "watch", "logs": "watch", "ui": "board", "serve": "board"}
}

// asFlag refuses a flag that is written as a setting: run ls sort=best.
func asFlag(verb string, f *pflag.FlagSet, args []string) error {
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		name := strings.NewReplacer(".", "-", "_", "-").Replace(strings.TrimPrefix(key, verb+"."))
		if _, err := os.Stat(a); ok && err != nil && f.Lookup(name) != nil {
			return usage.Errorf("%s: a flag of a command has dashes (did you mean --%s=%s?)", a, name, value)
		}
	}
	return nil
}

// numbers are the words before the first that is no number.
func numbers(words []string) []string {
	for i, word := range words {
		if _, err := strconv.ParseFloat(word, 64); err != nil {
			return words[:i]
		}
	}
	return words
}

// spaced returns the key and the value of what was written apart: grpo.lr 1e-3, grpo.lr = 1e-3, grpo.lr =1e-3, grpo.lr:1e-3.
func spaced(word string, after []string) (key, value string) {
	switch {
	case len(after) > 1 && after[0] == "=":
		return word, after[1]
	case len(after) > 0 && len(after[0]) > 1 && after[0][0] == '=':
		return word, after[0][1:]
	case len(after) > 0 && isWord(after[0]):
		return word, after[0]
	}
	if key, value, ok := strings.Cut(word, ":"); ok && key != "" {
		return key, value
	}
	return word, ""
}

// flagError is a flag that the program does not have.
type flagError struct {
	msg, name string // name with its dashes
	near      bool   // one of ours is
}

func (e *flagError) Error() string { return e.msg }

// ExitCode returns 2, as of every mistake in a command line.
func (e *flagError) ExitCode() int { return 2 }

// withoutDashes adds to the fault of an unknown flag the override that it stands for: settings have no dashes.
func (s *session) withoutDashes(err error, args []string) error {
	var unknown *flagError
	if !errors.As(err, &unknown) || unknown.near {
		return err
	}
	value := ""
	for i, a := range args {
		name, given, ok := strings.Cut(a, "=")
		if name != unknown.name {
			continue
		}
		if value = given; !ok && i+1 < len(args) && isWord(args[i+1]) {
			value = args[i+1]
		}
	}
	schema, serr := s.app.Schema()
	if serr != nil {
		return err
	}
	if meant := configs.Settings(configs.Request{Library: configs.Library(), Schema: schema}, unknown.name, value); len(meant) > 0 {
		return usage.Errorf("%s: settings are written without dashes (did you mean %s?)", unknown.msg, strings.Join(meant, " or "))
	}
	return usage.Errorf("%s: `run --help` lists groups and keys, `run --hydra-help` the flags", unknown.msg)
}
