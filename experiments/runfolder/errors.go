package runfolder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fulcrum/internal/program"

	"golang.org/x/sys/unix"
)

// Error says that a run or a sweep cannot have a folder. It is a usage error where the path is to blame.
type Error struct {
	Dir string
	Err error
}

func (e *Error) Error() string {
	if errors.Is(e.Err, unix.ENOTDIR) {
		return fmt.Sprintf("cannot use the folder %s: it is a file, or lies below one: name another folder", e.Dir)
	}
	return fmt.Sprintf("cannot use the folder %s: %v", e.Dir, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns 2 unless it is the disk's fault.
func (e *Error) ExitCode() int {
	machine := []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.ENOMEM, unix.EMFILE, unix.ENFILE}
	if slices.ContainsFunc(machine, func(fault error) bool { return errors.Is(e.Err, fault) }) {
		return 1
	}
	return 2
}

// InterruptedError says that a signal ended the run and whether its state is saved. It unwraps to
// its cause and context.Canceled, which the command line turns into exit code 128 + signal.
type InterruptedError struct {
	Cause   error // of the context's end
	Dir     string
	Outlive int  // jobs of a sweep that go on without this process
	Unsaved bool // of a task that writes its file at the end
}

func (e *InterruptedError) Error() string {
	if e.Outlive > 0 {
		return fmt.Sprintf("%v; %d jobs stay in the cluster's queue, follow them with: %s", e.Cause, e.Outlive, program.OnFolder("attach", e.Dir))
	}
	if e.Unsaved {
		return fmt.Sprintf("%v; nothing is saved yet, start again with: %s", e.Cause, program.OnFolder("resume", e.Dir))
	}
	return fmt.Sprintf("%v; the state is saved, go on with: %s", e.Cause, program.OnFolder("resume", e.Dir))
}

func (e *InterruptedError) Unwrap() []error { return []error{context.Canceled, e.Cause} }
