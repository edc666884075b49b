// Package atomicfile replaces files so that a reader, or a machine that loses power, sees the old content or the new
// one and never a half: write to a temporary file beside the target, fsync, rename, fsync the directory.
package atomicfile

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"fulcrum/internal/filelock"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/regular"
)

// File is a file under construction. It becomes visible under its name at Commit.
type File struct {
	*os.File
	path   string
	done   bool
	forget func() // of a signal that ends the process
}

// NotRegularError says that a path is something that must not be replaced by a file: a folder, a device, a pipe.
type NotRegularError struct{ Path, Kind string }

func (e *NotRegularError) Error() string {
	return fmt.Sprintf("%s is %s, want the name of a regular file", e.Path, e.Kind)
}

// Target returns the file that writing to path makes or replaces: path itself, or what it is a link to. Anything but a
// regular file is a NotRegularError.
func Target(path string) (string, error) {
	info, err := os.Stat(path)
	link, linkErr := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && linkErr == nil:
		return "", &NotRegularError{path, "a link to nothing"}
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", &NotRegularError{path, regular.Kind(info.Mode())}
	case link.Mode()&fs.ModeSymlink != 0:
		return filepath.EvalSymlinks(path)
	}
	return path, nil
}

// Create starts a file that will replace path, or what path is a link to, at Commit: a regular file or none. Call Abort
// (a no-op after Commit) in a defer.
func Create(path string) (*File, error) {
	path, err := Target(path)
	if err != nil {
		return nil, fmt.Errorf("cannot write: %w", err)
	}
	var f *os.File
	_, forget, err := interrupt.Temporary(func() (string, error) {
		f, err = os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp*")
		if err != nil {
			return "", err
		}
		return f.Name(), nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	file := &File{File: f, path: path, forget: forget}
	_ = filelock.Take(f) // tells Forget that somebody is at work; without locks, nothing is forgotten
	if err := f.Chmod(0o644); err != nil {
		file.Abort()
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	return file, nil
}

// CreateIn starts a file in a folder that the program keeps beside a user's files, and makes the folder. It follows no link, as Create
// does: whoever puts one there would have another file written.
func CreateIn(folder, name string) (*File, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	for _, path := range []string{folder, filepath.Join(folder, name)} {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, &NotRegularError{path, "a link"}
		}
	}
	return Create(filepath.Join(folder, name))
}

// Commit makes the content durable and visible. On error the old file stays as it was.
func (f *File) Commit() error {
	if f.done {
		return nil
	}
	f.done = true
	defer f.forget()
	err := f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("cannot write %s: %w", f.path, err)
	}
	return SyncDir(filepath.Dir(f.path))
}

// Abort drops the content. After Commit it does nothing.
func (f *File) Abort() {
	if f.done {
		return
	}
	f.done = true
	f.Close()
	os.Remove(f.Name())
	f.forget()
}

// Stream replaces path with what write writes. An error of write, or of the disk, leaves the old file.
func Stream(path string, write func(w *bufio.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return f.Commit()
}

// Write replaces path with data. A full disk leaves the old file and returns an error naming path.
func Write(path string, data []byte, perm os.FileMode) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	return f.finish(data, perm)
}

// WriteIn replaces a file as CreateIn makes it.
func WriteIn(folder, name string, data []byte) error {
	f, err := CreateIn(folder, name)
	if err != nil {
		return err
	}
	return f.finish(data, 0o644)
}

// finish writes the whole content.
func (f *File) finish(data []byte, perm os.FileMode) error {
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("cannot write %s: %w", f.path, err)
	}
	if err := f.Chmod(perm); err != nil {
		return fmt.Errorf("cannot write %s: %w", f.path, err)
	}
	return f.Commit()
}

// temporary is how this package names what it has not finished: CreateTemp's number, or a word.
var temporary = regexp.MustCompile(`^\..+\.tmp([0-9]+|link|gone)$`)

// WriteJSON replaces the file at path by v as indented JSON.
func WriteJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return Write(path, append(text, '\n'), 0o644)
}

// Forget removes temporary files of path that killed processes have left: those without a lock.
func Forget(path string) error {
	path, err := Target(path)
	if err != nil {
		return err
	}
	prefix := "." + filepath.Base(path) + ".tmp"
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !IsTemp(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(filepath.Dir(path), e.Name()), os.O_WRONLY, 0)
		if err != nil {
			continue // another's, or gone by now
		}
		if filelock.Take(f) == nil {
			err = os.Remove(f.Name())
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// IsTemp reports whether name is that of a temporary file or folder of this package, left by a process that was killed.
func IsTemp(name string) bool { return temporary.MatchString(name) }

// RemoveAll removes a folder in one step: a kill or a power cut leaves it whole or under a temporary name.
func RemoveAll(path string) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmpgone")
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Rename(path, tmp); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(path)); err != nil { // or the folder could come back without its files
		return err
	}
	return os.RemoveAll(tmp)
}

// MkdirAll makes a folder and those above it that are missing, all durable.
func MkdirAll(dir string) error {
	switch info, err := os.Stat(dir); {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err == nil: // whoever made it may have been killed before its name was durable
		return SyncDir(filepath.Dir(dir))
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(filepath.Dir(dir))
}

// Symlink makes link point at target, replacing what link was in one step.
func Symlink(target, link string) error {
	tmp := filepath.Join(filepath.Dir(link), "."+filepath.Base(link)+".tmplink")
	os.Remove(tmp)
	if err := os.Symlink(target, tmp); err != nil {
		return fmt.Errorf("cannot link %s: %w", link, err)
	}
	if err := os.Rename(tmp, link); err != nil {
		os.Remove(tmp)
		return fmt.Errorf("cannot link %s: %w", link, err)
	}
	return SyncDir(filepath.Dir(link))
}

// SyncDir makes the names in dir durable: files that were made, renamed or removed there. It does nothing in a folder
// that may not be listed, or on a file system that cannot sync folders.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	return nil
}
