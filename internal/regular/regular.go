// Package regular opens files that a user named. A pipe would block for ever, /dev/zero has no end, a terminal waits for
// a key: all but regular files are refused by name, without a wait.
package regular

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"fulcrum/internal/hostmem"
)

// Open opens a regular file for reading. Errors are those of os.Open, or say what the path is.
func Open(path string) (*os.File, error) {
	if err := check(path, os.Stat); err != nil { // before: to open a device may have effects
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := check(path, func(string) (fs.FileInfo, error) { return f.Stat() }); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Kept is a file that is opened again and again, as it was the first time.
type Kept struct {
	Path string
	Size int64
	mod  time.Time
}

// Keep opens a regular file and notes what it is.
func Keep(path string) (*os.File, Kept, error) {
	k := Kept{Path: path}
	f, err := Open(path)
	if err != nil {
		return nil, k, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, k, err
	}
	k.Size, k.mod = info.Size(), info.ModTime()
	return f, k, nil
}

// Open opens the file; one that changed is an error.
func (k Kept) Open() (*os.File, error) {
	f, now, err := Keep(k.Path)
	if err == nil && (now.Size != k.Size || !now.mod.Equal(k.mod)) {
		f.Close()
		return nil, fmt.Errorf("%s changed while it was in use: start again", k.Path)
	}
	return f, err
}

func check(path string, stat func(string) (fs.FileInfo, error)) error {
	info, err := stat(path)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return &fs.PathError{Op: "open", Path: failed.Path, Err: failed.Err}
	}
	if err != nil || info.Mode().IsRegular() {
		return err
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("want a regular file, it is %s", kind(info.Mode()))}
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// ReadOptional is ReadFile, but nil for a file that does not exist.
func ReadOptional(path string) ([]byte, error) {
	data, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// ReadFile returns what a regular file holds, when the machine's memory does.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := hostmem.Need(path, float64(info.Size())); err != nil {
		return nil, err
	}
	data := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead)) // room to see the end without growing
	if _, err := data.ReadFrom(f); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}
