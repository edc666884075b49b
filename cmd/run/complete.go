package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/configs"
	"fulcrum/internal/usage"
)

// Scripts that users evaluate: `eval "$(run -sc install=bash)"`, `run -sc install=fish | source`.
// They call `run -sc query=…` with the command line in COMP_LINE.

// bashScript leaves COMP_WORDBREAKS alone: it takes off what bash believes to be earlier words, such
// as the key of key=value. zsh runs it too, under bashcompinit, so it keeps to what both know.
//
//go:embed completion/run.bash
var bashScript string

//go:embed completion/run.zsh
var zshScript string

//go:embed completion/run.fish
var fishScript string

// shells are those that completion knows, with what is special about each.
var shells = map[string]struct{ install, uninstall, separator string }{
	"bash": {bashScript, "complete -r %[1]s; unset -f hydra_bash_completion\n", " "},
	"zsh":  {zshScript, "compdef -d %[1]s; unfunction hydra_zsh_completion\n", "\n"},
	"fish": {fishScript, "complete -e -c %[1]s; functions -e hydra_fish_completion\n", "\n"},
}

// completion installs, removes or answers shell completion.
func (s *session) completion(inv *invocation) error {
	want := usage.Errorf("%s", "--shell-completion: want install=, uninstall= or query= with bash, zsh or fish")
	if len(inv.args) != 1 {
		return want
	}
	what, name, _ := strings.Cut(inv.args[0], "=")
	shell, known := shells[name]
	if !known {
		return want
	}
	program := "run"
	if len(os.Args) > 0 {
		program = filepath.Base(os.Args[0])
	}
	text := ""
	switch what {
	case "install":
		text = fmt.Sprintf(shell.install, program)
	case "uninstall":
		text = fmt.Sprintf(shell.uninstall, program)
	case "query":
		line := os.Getenv("COMP_LINE")
		if at, err := strconv.Atoi(os.Getenv("COMP_POINT")); err == nil && at >= 0 && at < len(line) {
			line = line[:at]
		}
		if reply := s.candidates(line); len(reply) > 0 {
			text = strings.Join(reply, shell.separator) + "\n"
		}
	default:
		return want
	}
	_, err := io.WriteString(s.out, text)
	return err
}

// flagValues completes the word behind a flag that takes one.
var flagValues = map[string]func(req configs.Request, word string) []string{
	"--cfg":         func(_ configs.Request, word string) []string { return starting(word, cfgKinds[:]) },
	"--info":        func(_ configs.Request, word string) []string { return starting(word, infoKinds[:]) },
	"--package":     configs.CompleteKey,
	"--config-name": configs.CompleteConfig,
	"--config-path": func(_ configs.Request, word string) []string { return folders(word) },
	"--config-dir":  func(_ configs.Request, word string) []string { return folders(word) },
	"--rerun":       func(_ configs.Request, word string) []string { return folders(word) },
}

// candidates completes the last word of a command line.
func (s *session) candidates(line string) []string {
	words, word := shellWords(line)
	for len(words) > 0 && isAssignment(words[0]) { // VAR=x run …
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	words = words[1:] // the program
	verb := ""
	if len(words) > 0 && s.isVerb(words[0]) {
		verb, words = words[0], words[1:]
	}
	if verb != "" && verb != explainName {
		return s.verbCandidates(verb, words, word)
	}
	flag, head := "", ""
	if n := len(words); n > 0 {
		flag = longFlag(words[n-1])
	}
	if name, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
		flag, head, word = longFlag(name), name+"=", value
	}
	if value := flagValues[flag]; value != nil {
		if head == "" {
			words = words[:len(words)-1]
		}
		out := value(s.tolerantRequest(words), word)
		for i := range out {
			out[i] = head + out[i]
		}
		if len(out) > 0 || flag != "--info" { // --info needs no value
			return out
		}
	}
	if strings.HasPrefix(word, "-") {
		return starting(word, usage.LongFlags(flagSet(&invocation{})))
	}
	inv, err := parseArgs(words)
	switch {
	case err != nil:
	case inv.completion:
		var all []string
		for name := range shells {
			all = append(all, "install="+name, "uninstall="+name, "query="+name)
		}
		return starting(word, all)
	case verb == explainName && len(inv.args) == 0 || len(inv.args) == 1 && inv.args[0] == explainName:
		return configs.CompleteKey(s.tolerantRequest(words), word)
	case verb == "" && (len(words) == 0 || len(words) == 1 && words[0] == helpName):
		out := append(configs.Complete(s.tolerantRequest(nil), word), starting(word, s.verbs.Names())...)
		slices.Sort(out)
		return out
	}
	return configs.Complete(s.tolerantRequest(words), word)
}

// verbCandidates completes an argument of a verb other than explain.
func (s *session) verbCandidates(name string, words []string, word string) []string {
	newVerb, err := s.verbs.Get(name)
	if err != nil {
		return nil
	}
	v := newVerb()
	switch {
	case v.overrides && !strings.HasPrefix(word, "-"):
		return configs.Complete(s.tolerantRequest(words), word)
	case strings.Contains(word, "="):
		return configs.Complete(s.tolerantRequest(nil), word)
	case strings.HasPrefix(word, "-"):
		flags := []string{"--help"}
		if v.flags != nil {
			flags = append(flags, usage.LongFlags(v.flags)...)
		}
		return starting(word, flags)
	case v.words != nil && len(words) == 0:
		return starting(word, v.words)
	}
	return configs.CompleteFile(word)
}

// tolerantRequest returns the request of a line that is still being typed: what does not parse is left out.
func (s *session) tolerantRequest(words []string) configs.Request {
	inv, err := parseArgs(words)
	if err != nil {
		inv = &invocation{}
	}
	if len(inv.args) > 0 && !strings.ContainsAny(inv.args[0], "=~") { // explain's key
		inv.args = inv.args[1:]
	}
	req, err := s.request(inv)
	if err != nil {
		req.Overrides = nil
	}
	req.Warn = nil
	if inv.configPath != "" { // of whichever program the tree is
		req.Schema = nil
	}
	return req
}

// shellWords splits a line as a shell does, up to the last word, which is returned apart.
func shellWords(line string) (words []string, last string) {
	var b strings.Builder
	open := false // inside a word
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			b.WriteByte(line[i])
			open = true
		case quote != 0:
			b.WriteByte(c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == ' ' || c == '\t':
			if open {
				words = append(words, b.String())
			}
			b.Reset()
			open = false
		default:
			b.WriteByte(c)
			open = true
		}
	}
	return words, b.String()
}

// isAssignment reports whether a word sets a variable for the command behind it.
func isAssignment(s string) bool {
	name, _, ok := strings.Cut(s, "=")
	return ok && name != "" && !strings.ContainsAny(name, "./-+~@")
}

// longFlag returns the long name of a flag, "" for another word.
func longFlag(w string) string {
	if !strings.HasPrefix(w, "-") {
		return ""
	}
	flagSet(&invocation{}).VisitAll(func(f *pflag.Flag) {
		if names := namesOf(f); slices.Contains(names, w) {
			w = names[0]
		}
	})
	return w
}

func starting(word string, all []string) []string {
	out := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, word) })
	slices.Sort(out)
	return out
}

func folders(word string) []string {
	return slices.DeleteFunc(configs.CompleteFile(word), func(s string) bool { return !strings.HasSuffix(s, "/") })
}
