package runfolder

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fulcrum/internal/usage"
)

// kernelFiles are file systems in which no folder can be made, whatever the permissions.
var kernelFiles = []int64{unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
	unix.DEVPTS_SUPER_MAGIC}

// Free returns the bytes that are free where dir is or would be; NaN where the file system does not say.
func Free(dir string) float64 {
	if missing := FirstMissing(dir); missing != "" {
		dir = filepath.Dir(missing)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return math.NaN()
	}
	return freeOf(fs)
}

// freeOf returns the free bytes of a file system. One in user space (FUSE) may report no blocks at all.
func freeOf(fs unix.Statfs_t) float64 {
	if fs.Blocks == 0 {
		return math.NaN()
	}
	return float64(fs.Bavail) * float64(cmp.Or(fs.Frsize, fs.Bsize))
}

// Usable returns the error by which a run could not have dir for its folder, and writes nothing: a dry run asks.
func Usable(dir string) error {
	if Locked(dir) {
		return usage.Errorf("%s: another process is writing this run folder", dir)
	}
	above, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(above); err != nil && !errors.Is(err, os.ErrNotExist) { // below a file, too long a name
		return &Error{dir, err}
	}
	if missing := FirstMissing(dir); missing != "" {
		for _, name := range strings.Split(above, "/") {
			if len(name) > unix.NAME_MAX {
				return &Error{dir, unix.ENAMETOOLONG}
			}
		}
		above = filepath.Dir(missing)
	}
	info, err := os.Stat(above)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "mkdir", Path: above, Err: unix.ENOTDIR}
	}
	if err == nil {
		err = takesFiles(above)
	}
	if err != nil {
		return &Error{dir, err}
	}
	return nil
}

// takesFiles returns the error by which a folder takes no file. It opens one without a name, which no listing shows, where the file system
// knows such files.
func takesFiles(folder string) error {
	if err := unix.Access(folder, unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "write to", Path: folder, Err: err}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: folder, Err: err}
	}
	if slices.Contains(kernelFiles, int64(fs.Type)) {
		return fmt.Errorf("%s is of the kernel's file systems, which hold no files of anybody's", folder)
	}
	fd, err := unix.Open(folder, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS), errors.Is(err, unix.ENOSPC),
		errors.Is(err, unix.EDQUOT):
		return &os.PathError{Op: "write to", Path: folder, Err: err}
	}
	return nil // a file system without such files
}
