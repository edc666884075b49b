// Package stdout writes results to the standard output and remembers when that failed, so that a full disk behind it is
// seen in the exit code. It is the process's, as os.Stdout is: the command line asks it once, at the end.
package stdout

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"golang.org/x/term"

	"fulcrum/internal/program"
)

var failed atomic.Pointer[error] // the first write that failed

type writer struct{}

func (writer) Write(p []byte) (int, error) {
	n, err := os.Stdout.Write(p)
	if errors.Is(err, syscall.EPIPE) { // who reads a pipe may leave
		return len(p), nil
	}
	if err != nil {
		err = fmt.Errorf("cannot write to the standard output: %w", err)
		failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Writer returns the standard output.
func Writer() io.Writer { return writer{} }

// OutliveReaders makes a write to a pipe that nobody reads any more (run … | head) an error, not the end of the process and with it of a
// run or of a sweep's jobs: what they print stands in their folder too. The signal is caught, not ignored, which every process started
// from here would inherit.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

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

// Printf writes prose as fmt.Printf does, as Folded makes it.
func Printf(format string, args ...any) { Print(Folded(fmt.Sprintf(format, args...))) }

// Message writes a line that is no result, a warning or an error, to w, usually os.Stderr, as Folded makes it for w.
func Message(w io.Writer, text string) {
	width := 0
	if f, ok := w.(*os.File); ok {
		width, _, _ = term.GetSize(int(f.Fd())) // 0: it is no terminal
	}
	fmt.Fprintln(w, folded(text, width))
}

// Println writes as fmt.Println does.
func Println(args ...any) { fmt.Fprintln(writer{}, args...) }

// Err returns the error of the first write that failed, nil where all went well.
func Err() error {
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Fold breaks a line into lines of at most width characters (0: any number); what follows the first is indented. Commands,
// as program.Cut finds them, stand whole on lines of their own, without backticks, to be pasted; what surrounds them is prose.
func Fold(line string, width, indent int) string {
	if line = strings.TrimRight(line, " "); width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	var out []string
	for {
		before, command, after, found := program.Cut(line)
		if strings.TrimSpace(before) != "" {
			out = append(out, foldProse(before, width, indent))
		}
		if !found {
			return strings.Join(out, "\n")
		}
		out = append(out, strings.Repeat(" ", cmp.Or(indent, 4))+command)
		line = strings.Repeat(" ", indent) + strings.TrimLeft(after, " ,;.:")
	}
}

// foldProse breaks a line at spaces, or behind a bar, into lines of at most width characters; what follows the
// first is indented. Where columns, two blanks apart, begin in the right half of a line, it is broken before the last of them:
// a name stays with its value. A word that is too long stays whole.
func foldProse(line string, width, indent int) string {
	var b strings.Builder
	for utf8.RuneCountInString(line) > width {
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

// Folded names the program in commands as it was called, and breaks the lines that are wider than the terminal.
func Folded(text string) string { return folded(text, Width()) }

func folded(text string, width int) string {
	text = program.AsCalled(text)
	if width == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Fold(line, width, 4)
	}
	return strings.Join(lines, "\n")
}
