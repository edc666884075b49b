package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"fulcrum/configs"
)

// Scripts that users evaluate: `eval "$(run -sc install=bash)"`. They call `run -sc query=…` with the
// command line in COMP_LINE.

const bashScript = `hydra_bash_completion()
{
    local words
    words=($COMP_LINE)
    if [ "${words[0]}" == "python" ]; then
        return
    fi
    local EXECUTABLE=${words[0]}
    local choices
    choices=$( COMP_POINT=$COMP_POINT COMP_LINE=$COMP_LINE $EXECUTABLE -sc query=bash )
    local word=${words[$COMP_CWORD]}
    if [ "$COMP_TYPE" == "63" ]; then
        word=${COMP_LINE##* }
    fi
    COMPREPLY=($( compgen -o nospace -o default -W '$choices' -- "${COMP_LINE##* }" ))
}

COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
COMP_WORDBREAKS=$COMP_WORDBREAKS complete -o nospace -o default -F hydra_bash_completion %[1]s
`

const fishScript = `function hydra_fish_completion
    set -lx COMP_LINE (commandline -cp)
    %[1]s -sc query=fish
end
complete -c %[1]s -f -a '(hydra_fish_completion)'
`

// completion installs, removes or answers shell completion.
func (s *session) completion(inv *invocation) error {
	want := &usageError{"--shell-completion: want install=bash|fish, uninstall=bash|fish or query=bash|fish"}
	if len(inv.args) == 0 {
		return want
	}
	what, shell, _ := strings.Cut(inv.args[0], "=")
	if shell != "bash" && shell != "fish" {
		return want
	}
	program := "run"
	if len(os.Args) > 0 {
		program = os.Args[0]
		if i := strings.LastIndexByte(program, '/'); i >= 0 {
			program = program[i+1:]
		}
	}
	switch what {
	case "install":
		script := bashScript
		if shell == "fish" {
			script = fishScript
		}
		_, err := fmt.Fprintf(s.out, script, program)
		return err
	case "uninstall":
		text := "complete -r " + program + "\n"
		if shell == "fish" {
			text = "complete -e -c " + program + "\n"
		}
		_, err := io.WriteString(s.out, text)
		return err
	case "query":
		sep := " "
		if shell == "fish" {
			sep = "\n"
		}
		_, err := io.WriteString(s.out, strings.Join(s.candidates(os.Getenv("COMP_LINE")), sep)+"\n")
		return err
	}
	return want
}

// candidates completes the last word of a command line. A line that does not compose offers groups only.
func (s *session) candidates(line string) []string {
	words := strings.Fields(line)
	word := ""
	if len(words) > 0 {
		words = words[1:]
	}
	if len(words) > 0 && !strings.HasSuffix(line, " ") {
		word = words[len(words)-1]
		words = words[:len(words)-1]
	}
	if strings.HasPrefix(word, "-") {
		var out []string
		for _, l := range strings.Split(flagsHelp(), "\n") {
			name, _, _ := strings.Cut(l, " :")
			if name, _, _ = strings.Cut(name, ","); strings.HasPrefix(name, word) {
				out = append(out, name)
			}
		}
		return out
	}
	inv, err := parseArgs(words)
	if err != nil {
		return nil
	}
	req, err := s.request(inv, false)
	req.Warn = nil
	if err != nil {
		req.Overrides = nil
	}
	return configs.Complete(req, word)
}
