// Package atomicfile replaces files so that a reader, or a machine that loses power, sees the old
// content or the new one and never a half: write to a temporary file beside the target, fsync,
// rename, fsync the directory.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// File is a file under construction. It becomes visible under its name at Commit.
type File struct {
	*os.File
	path string
	done bool
}

// Create starts a file that will replace path at Commit. Call Abort (a no-op after Commit) in a defer.
func Create(path string) (*File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp*")
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	return &File{File: f, path: path}, nil
}

// Commit makes the content durable and visible. On error the old file stays as it was.
func (f *File) Commit() error {
	if f.done {
		return nil
	}
	f.done = true
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
}

// Write replaces path with data. A full disk leaves the old file and returns an error naming path.
func Write(path string, data []byte, perm os.FileMode) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := f.Chmod(perm); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return f.Commit()
}

// temporary is how this package names what it has not finished: CreateTemp's number, or a word.
var temporary = regexp.MustCompile(`^\..+\.tmp([0-9]+|link|gone)$`)

// IsTemp reports whether name is that of a temporary file or folder of this package, left by a process
// that was killed.
func IsTemp(name string) bool { return temporary.MatchString(name) }

// RemoveAll removes a folder in one step: a kill leaves it whole or under a temporary name.
func RemoveAll(path string) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmpgone")
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Rename(path, tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(tmp)
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

// SyncDir makes renames in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	return nil
}
