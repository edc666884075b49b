// Package filelock holds whole files by the kernel's locks of open file descriptions: a lock ends when its
// file is closed, at the latest with the process, and works across the machines of a shared file system
// that has POSIX locks. A child inherits it only with the file itself.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fulcrum/internal/regular"
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
	f, err := regular.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	l := wholeFile()
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, l) == nil && l.Type != unix.F_UNLCK
}

// Holder returns the process of this machine that holds the lock of the file at path; 0 where there is none that this
// user may see. Linux tells it in /proc.
func Holder(path string) (pid int, err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return 0, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return 0, err
	}
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, fmt.Errorf("/proc: %w", err)
	}
	for _, file := range files { // a process may end meanwhile
		if to, err := os.Readlink(file); err != nil || to != path {
			continue
		}
		parts := strings.Split(file, "/")
		info, err := os.ReadFile("/proc/" + parts[2] + "/fdinfo/" + parts[4])
		if err == nil && strings.Contains(string(info), "lock:") {
			return strconv.Atoi(parts[2])
		}
	}
	return 0, nil
}
