// Package stdout writes results to the standard output, and everything else to the standard error. It shows what a terminal
// would obey, for names and texts of data are in both, and remembers when writing results failed, so that a full disk behind
// them is seen in the exit code. It is the process's, as os.Stdout is: the command line asks it once, at the end.
package stdout

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"golang.org/x/term"

	"fulcrum/internal/program"
	"fulcrum/internal/visible"
)

var failed atomic.Pointer[error] // the first write that failed

// Stream is the standard output or the standard error.
type Stream struct {
	file  **os.File
	watch bool // errors count
	mu    sync.Mutex
	begun []byte // of a character whose end has not come yet
}

var out, errOut = &Stream{file: &os.Stdout, watch: true}, &Stream{file: &os.Stderr}

// Writer returns the standard output.
func Writer() *Stream { return out }

// Errors returns the standard error.
func Errors() *Stream { return errOut }

// Mute drops what is written to the standard output from now on: of the processes of a run, one writes.
func Mute() (err error) {
	os.Stdout, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	return err
}

// Write writes text, in which visible.Text shows what a terminal would obey.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := p
	if len(s.begun) > 0 {
		text = slices.Concat(s.begun, p)
	}
	whole := visible.Whole(text)
	s.begun = slices.Clone(text[whole:])
	if _, err := s.raw([]byte(visible.Text(string(text[:whole])))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Control writes a text as it is: with the program's own colours and movements of the cursor, and data that are visible.
func (s *Stream) Control(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.raw([]byte(text)) // of the standard output, the error is kept
}

// Data returns a writer for what is no text, or what another program reads as it is: to a terminal it shows what Write does.
func (s *Stream) Data() io.Writer {
	if columns, _ := s.Size(); columns > 0 {
		return s
	}
	return data{s}
}

type data struct{ s *Stream }

func (d data) Write(p []byte) (int, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.s.raw(p)
}

func (s *Stream) raw(p []byte) (int, error) {
	n, err := (*s.file).Write(p)
	if !s.watch {
		return n, err
	}
	if errors.Is(err, syscall.EPIPE) { // who reads a pipe may leave
		return len(p), nil
	}
	if err != nil {
		err = fmt.Errorf("cannot write to the standard output: %w", err)
		failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Size is how many columns and lines the terminal has that the stream is; 0, 0: it is none.
func (s *Stream) Size() (columns, lines int) {
	if !term.IsTerminal(int((*s.file).Fd())) {
		return 0, 0
	}
	if columns, lines, err := term.GetSize(int((*s.file).Fd())); err == nil && columns > 0 && lines > 0 {
		return columns, lines
	}
	return 80, 24
}

// OutliveReaders makes a write to a pipe that nobody reads any more (run … | head) an error, not the end of the process and with it of a
// run or of a sweep's jobs: what they print stands in their folder too. The signal is caught, not ignored, which every process started
// from here would inherit.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// Width returns the number of columns of the standard output's terminal; 0 if it is not a terminal.
func Width() int {
	columns, _ := Size()
	return columns
}

// Size is how many columns and lines the terminal has that the standard output is; 0, 0: it is none.
func Size() (columns, lines int) { return out.Size() }

// Print writes as fmt.Print does.
func Print(args ...any) { fmt.Fprint(out, args...) }

// Printf writes prose as fmt.Printf does, as Folded makes it.
func Printf(format string, args ...any) { Print(Folded(fmt.Sprintf(format, args...))) }

// Message writes a line that is no result, a warning or an error, to w, usually Errors, as Folded makes it for w.
func Message(w io.Writer, text string) {
	width := 0
	if s, ok := w.(*Stream); ok {
		width, _ = s.Size()
	}
	fmt.Fprintln(w, folded(text, width))
}

// Println writes as fmt.Println does.
func Println(args ...any) { fmt.Fprintln(out, args...) }

// Err returns the error of the first write that failed, nil where all went well. Nothing is written after it.
func Err() error {
	if len(out.begun) > 0 { // the end of this character never came
		out.Control(visible.Text(string(out.begun)))
	}
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
	text = visible.Text(program.AsCalled(text))
	if width == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Fold(line, width, 4)
	}
	return strings.Join(lines, "\n")
}
