// Package filelock holds whole files by the kernel's locks of open file descriptions: a lock ends when its
// file is closed, at the latest with the process, and works across the machines of a shared file system
// that has POSIX locks. A child inherits it only with the file itself.
package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func wholeFile() *unix.Flock_t { return &unix.Flock_t{Type: unix.F_WRLCK} }

// Take locks an open, writable file. It does not wait: a lock that another holds is an error.
func Take(f *os.File) error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, wholeFile()) }

// ErrHeld says that another process holds a lock.
var ErrHeld = errors.New("another process holds the lock")

// TakeFolder locks a folder, whatever becomes of the files in it. It does not wait: where another holds it, the error is
// ErrHeld. It returns the open folder, whose closing ends the lock, or nil where the file system cannot lock folders.
func TakeFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrPermission) { // it may be entered but not listed
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrHeld
	}
	return nil, nil
}

// Held reports whether somebody holds the lock of the file at path. It asks and takes nothing, so that
// one who takes the lock just now is not in the way.
func Held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	l := wholeFile()
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, l) == nil && l.Type != unix.F_UNLCK
}
