package sweep

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
)

// programFolder holds, inside a sweep's folder, the program that its jobs run and the libraries beside it: a build
// in the middle of a sweep does not change the jobs that have not begun.
var programFolder = filepath.Join(".sweep", "program")

// keptProgram returns the path of the program that the sweep in dir keeps, or "" if it keeps none.
func keptProgram(dir string) string {
	path := filepath.Join(dir, programFolder, "run")
	if unix.Access(path, unix.X_OK) != nil { // gone, or on a file system that executes nothing
		return ""
	}
	return path
}

// OtherProgram returns the path of the program that the jobs of the sweep in dir run where that is not this one, "" else.
func OtherProgram(dir string) (string, error) {
	kept := keptProgram(dir)
	if kept == "" {
		return "", nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if same, err := sameContent(kept, self); err != nil || same {
		return "", err
	}
	return kept, nil
}

// keepProgram puts this program and its libraries into the sweep's folder, as hard links where the file system
// allows it and as copies elsewhere. The folder is whole or absent.
func keepProgram(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	files := map[string]string{"run": self}
	library, err := forwardingLibrary()
	if err != nil {
		return err
	}
	for _, name := range []string{filepath.Base(library), "libfulcrum_torch.so"} {
		files[filepath.Join("lib", name)] = filepath.Join(filepath.Dir(library), name)
	}
	to := filepath.Join(dir, programFolder)
	if filepath.Dir(self) == to { // called by its kept name
		return nil
	}
	if same, err := sameContent(self, running); err != nil || !same { // a build has replaced the file since this process began
		files["run"] = running
	}
	if err := atomicfile.RemoveAll(to); err != nil {
		return err
	}
	if err := atomicfile.MkdirAll(filepath.Dir(to)); err != nil {
		return err
	}
	building, err := os.MkdirTemp(filepath.Dir(to), ".program.tmp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(building)
	if err := errors.Join(os.Chmod(building, 0o755), os.Mkdir(filepath.Join(building, "lib"), 0o755)); err != nil {
		return err
	}
	for name, from := range files {
		if err := linkOrCopy(from, filepath.Join(building, name)); err != nil {
			return fmt.Errorf("keeping the sweep's program: %w", err)
		}
	}
	err = errors.Join(atomicfile.SyncDir(filepath.Join(building, "lib")), atomicfile.SyncDir(building)) // or a power cut leaves empty files
	if err == nil {
		err = os.Rename(building, to)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(to))
	}
	if err != nil {
		return err
	}
	if keptProgram(dir) == "" {
		stdout.Message(stdout.Errors(), fmt.Sprintf("warning: nothing can be executed in %s: jobs run %s itself, and a build in the middle of "+
			"the sweep changes them", dir, self))
	}
	return nil
}

// running is this process's program, even where its file has been replaced.
const running = "/proc/self/exe"

// forwardingLibrary returns the path of the library that this process is linked to (docs/architecture.md, Libtorch).
func forwardingLibrary() (string, error) {
	maps, err := regular.Open("/proc/self/maps")
	if err != nil {
		return "", err
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if at := strings.IndexByte(lines.Text(), '/'); at >= 0 && filepath.Base(lines.Text()[at:]) == "libcgotorch.so" {
			return lines.Text()[at:], nil
		}
	}
	return "", errors.New("keeping the sweep's program: its library libcgotorch.so is gone from where it was loaded; start the " +
		"sweep again after the build")
}

// linkOrCopy makes to a hard link to from, or a copy where a link is not allowed (another file system, another owner).
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := regular.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := regular.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// chooseProgram returns what the jobs of a resumed sweep run: the program that the sweep keeps or, where it keeps
// none or the user accepts changes, this one, which it keeps from then on. It says so when the two differ.
func chooseProgram(dir string, accept bool) error {
	if accept || keptProgram(dir) == "" {
		return keepProgram(dir)
	}
	kept, err := OtherProgram(dir)
	if kept != "" {
		stdout.Message(stdout.Errors(), fmt.Sprintf("note: the jobs run the program that the sweep was started with (%s), not this build; "+
			"to change to this one: %s", kept, program.OnFolder("resume", dir, AcceptChanges)))
	}
	return err
}

// sameContent reports whether two files hold the same bytes.
func sameContent(a, b string) (bool, error) {
	one, err := os.Stat(a)
	two, failed := os.Stat(b)
	switch err = cmp.Or(err, failed); {
	case err != nil:
		return false, err
	case os.SameFile(one, two) || one.Size() != two.Size():
		return os.SameFile(one, two), nil
	}
	x, _, err := digest.File(a)
	y, _, failed := digest.File(b)
	return x == y, cmp.Or(err, failed)
}

// dropProgram removes the kept program of a sweep whose jobs are all done.
func dropProgram(dir string) error { return atomicfile.RemoveAll(filepath.Join(dir, programFolder)) }
