// Package regular opens files that a user named, and those of run folders, which anybody may have put there. A pipe would
// block for ever, /dev/zero has no end, a terminal waits for a key: all but regular files are refused by name, without a
// wait. A link to a regular file is one.
package regular

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fulcrum/internal/hostmem"
)

// Open opens a regular file for reading. Errors are those of os.Open, or say what the path is.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile opens a regular file as os.OpenFile does; with os.O_CREATE there may be none yet.
func OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	err := check(path, os.Stat) // before: to open a device may have effects
	if err != nil && (flag&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	return checked(os.OpenFile(path, flag|syscall.O_NONBLOCK, perm)) // a pipe may have come meanwhile: it is not waited for
}

// checked closes an open file that is not regular.
func checked(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	if err := check(f.Name(), func(string) (fs.FileInfo, error) { return f.Stat() }); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Check returns the error that Open would return of what the path is. For those who open it otherwise.
func Check(path string) error { return check(path, os.Stat) }

// Kept is a file that is opened again and again, as it was the first time.
type Kept struct {
	Path string
	Size int64
	mod  time.Time
}

// OpenIn opens a regular file of a folder, and follows no link out of it.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	return checked(root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0))
}

// ReadIn returns what a document holds that OpenIn opens.
func ReadIn(root *os.Root, name string) ([]byte, error) {
	f, err := OpenIn(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readSmall(f, f.Name(), Document)
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
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: "open", Path: failed.Path, Err: failed.Err}
	}
	if err != nil || info.Mode().IsRegular() {
		return err
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("want a regular file, it is %s", Kind(info.Mode()))}
}

// Kind says what is no regular file.
func Kind(mode fs.FileMode) string {
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

// Document is what a document of a run folder may have, in bytes: a summary, a configuration, an index. Those of a run of
// a million questions have less.
const Document = 64 << 20

// ReadDocument returns what a regular file of at most Document bytes holds.
func ReadDocument(path string) ([]byte, error) { return ReadSmall(path, Document) }

// ReadSmall returns what a regular file holds that is to be small: one of more than most bytes is refused by name.
func ReadSmall(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readSmall(f, path, most)
}

func readSmall(f *os.File, path string, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var data []byte
	if info.Size() <= most {
		data, err = io.ReadAll(io.LimitReader(f, most+1)) // it may grow
	}
	if err == nil && max(info.Size(), int64(len(data))) > most {
		err = fmt.Errorf("want at most %s, it has %s", hostmem.Size(float64(most)), hostmem.Size(float64(max(info.Size(), most+1))))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data, nil
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

// Glob lists what matches a pattern in a folder whose own name means itself: a run's may be called schedule=[rce,grpo].
func Glob(dir, pattern string) ([]string, error) {
	literal := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
	return filepath.Glob(filepath.Join(literal, pattern))
}

// Identity tells a file and its content from others: whatever writes to it, replaces it or sets its times changes one of these. The zero
// Identity is that of no regular file.
type Identity struct {
	Device, Inode    uint64
	Size             int64
	Written, Changed int64 // content and all else, nanoseconds since 1970
}

// IdentityOf returns the identity of the regular file that info describes.
func IdentityOf(info fs.FileInfo) Identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return Identity{}
	}
	return Identity{uint64(s.Dev), s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano()}
}

// Identify returns the identity of the regular file at path, none where there is none.
func Identify(path string) Identity {
	info, err := os.Stat(path)
	if err != nil {
		return Identity{}
	}
	return IdentityOf(info)
}
