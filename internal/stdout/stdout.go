// Package stdout writes results to the standard output and remembers when that failed, so that a full disk behind it is
// seen in the exit code. It is the process's, as os.Stdout is: the command line asks it once, at the end.
package stdout

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"

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
	if !term.IsTerminal(int(os.Stdout.Fd())) {
		return 0
	}
	if columns, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && columns > 0 {
		return columns
	}
	return 80
}

// Print writes as fmt.Print does.
func Print(args ...any) { fmt.Fprint(writer{}, args...) }

// Printf writes as fmt.Printf does.
func Printf(format string, args ...any) { fmt.Fprintf(writer{}, format, args...) }

// Println writes as fmt.Println does.
func Println(args ...any) { fmt.Fprintln(writer{}, args...) }

// Err returns the error of the first write that failed, nil where all went well.
func Err() error {
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
