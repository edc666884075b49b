// Package program says how this program was called, so that the commands that it prints can be pasted.
package program

import (
	"os"
	"path/filepath"
	"strings"
)

// Called is the program as it was called: run, bin/run, /opt/my tools/run; run in a test, and where it is the copy that a sweep keeps
// while it runs.
func Called() string {
	if len(os.Args) == 0 || os.Args[0] == "" || strings.HasSuffix(os.Args[0], ".test") || strings.Contains(os.Args[0], "/.sweep/program/") {
		return "run"
	}
	return os.Args[0]
}

// Name is Called, quoted for a shell.
func Name() string { return Quoted(Called()) }

// Command is a command of this program inside a message: in backticks, its words quoted for a shell. Until AsCalled names the
// program as it was called, it is run: a message may be kept and read from anywhere.
func Command(words ...string) string { return "`run " + Quoted(words...) + "`" }

// OnFolder is a command on a folder that can be pasted in another directory: the folder's path is absolute.
func OnFolder(verb, dir string, more ...string) string {
	if path, err := filepath.Abs(dir); err == nil {
		dir = path
	}
	return Command(append([]string{verb, dir}, more...)...)
}

// AsCalled names the program in the commands of a message as it was called.
func AsCalled(message string) string { return strings.ReplaceAll(message, "`run ", "`"+Name()+" ") }

// Cut splits a message at its first command: more than one word in backticks. A backtick in single quotes does not end it.
func Cut(message string) (before, command, after string, found bool) {
	for from := 0; ; {
		open := strings.IndexByte(message[from:], '`')
		if open < 0 {
			return message, "", "", false
		}
		open += from
		end, quoted := open+1, false
		for end < len(message) && (quoted || message[end] != '`') {
			if message[end] == '\'' {
				quoted = !quoted
			} else if message[end] == '\\' && !quoted {
				end++
			}
			end++
		}
		if end >= len(message) {
			return message, "", "", false
		}
		if command = message[open+1 : end]; strings.Contains(command, " ") {
			return message[:open], command, message[end+1:], true
		}
		from = end + 1
	}
}

// Quoted joins words as a POSIX shell reads them.
func Quoted(words ...string) string {
	out := make([]string, len(words))
	for i, word := range words {
		if out[i] = word; word == "" || strings.ContainsAny(word, " \t\r\n'\"\\$`!*?[]{}()<>|&;#~") {
			out[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}
