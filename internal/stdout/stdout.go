// Package stdout writes results to the standard output and remembers when that failed, so that a full disk behind it is
// seen in the exit code. It is the process's, as os.Stdout is: the command line asks it once, at the end.
package stdout

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"golang.org/x/term"
)

var failed atomic.Pointer[error] // the first write that failed

type writer struct{}

func (writer) Write(p []byte) (int, error) {
	n, err := os.Stdout.Write(p)
	if err != nil {
		err = fmt.Errorf("cannot write to the standard output: %w", err)
		if !errors.Is(err, syscall.EPIPE) { // who reads a pipe may leave
			failed.CompareAndSwap(nil, &err)
		}
	}
	return n, err
}

// Writer returns the standard output.
func Writer() io.Writer { return writer{} }

// Width is how many columns the terminal has that the standard output is; 0: it is none.
func Width() int {
	columns, _ := Size()
	return columns
}

// Size is how many columns and lines the terminal has that the standard output is; 0, 0: it is none.
func Size() (columns, lines int) {
	if !term.IsTerminal(int(os.Stdout.Fd())) {
		return 0, 0
	}
	if columns, lines, err := term.GetSize(int(os.Stdout.Fd())); err == nil && columns > 0 && lines > 0 {
		return columns, lines
	}
	return 80, 24
}

// Print writes as fmt.Print does.
func Print(args ...any) { fmt.Fprint(writer{}, args...) }

// Printf writes prose as fmt.Printf does, broken at the terminal's width.
func Printf(format string, args ...any) { Print(Folded(fmt.Sprintf(format, args...))) }

// Println writes as fmt.Println does.
func Println(args ...any) { fmt.Fprintln(writer{}, args...) }

// Err returns the error of the first write that failed, nil where all went well.
func Err() error {
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Fold breaks a line at spaces, or behind a bar, into lines of at most width characters (0: any number); what follows the
// first is indented. Where columns, two blanks apart, begin in the right half of a line, it is broken before the last of them:
// a name stays with its value. A word that is too long stays whole.
func Fold(line string, width, indent int) string {
	var b strings.Builder
	for width > 0 && utf8.RuneCountInString(line) > width {
		runes := []rune(line)
		at := width
		if gap := strings.LastIndex(string(runes[:width]), "  "); gap > len(string(runes[:width/2])) {
			at = utf8.RuneCountInString(string(runes[:width])[:gap]) + 1
		}
		for at > indent && runes[at] != ' ' && runes[at-1] != '|' {
			at--
		}
		if at <= indent {
			for at = width; at < len(runes) && runes[at] != ' '; {
				at++
			}
			if at == len(runes) {
				break
			}
		}
		b.WriteString(strings.TrimRight(string(runes[:at]), " ") + "\n")
		line = strings.Repeat(" ", indent) + strings.TrimLeft(string(runes[at:]), " ")
	}
	return b.String() + strings.TrimRight(line, " ")
}

// Folded breaks the lines of prose that are wider than the terminal. What is written to a file or a pipe stays as it is.
func Folded(text string) string {
	width := Width()
	if width == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Fold(line, width, 4)
	}
	return strings.Join(lines, "\n")
}
