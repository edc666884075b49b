// Package build says which program this is: its version and the revision that it was built from.
package build

import (
	"debug/elf"
	"os"
	"runtime/debug"
	"strings"
)

// Version is the program's version.
const Version = "0.1.0"

// Commit returns the revision that the program was built from, "" where the build did not record one.
func Commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

// Name returns version, revision and what the linker calls the contents of this very program, by which reports of another one can be told
// apart: a program of the same revision may have been built from changed sources.
func Name() string { return strings.Join(strings.Fields(Version+" "+Commit()+" "+contents()), " ") }

// contents returns the last part of Go's build ID, a digest of the program; "" where it was taken out.
func contents() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	note := f.Section(".note.go.buildid")
	if note == nil {
		return ""
	}
	data, err := note.Data()
	if err != nil {
		return ""
	}
	_, id, found := strings.Cut(strings.TrimRight(string(data), "\x00"), "/")
	if !found {
		return ""
	}
	return id[strings.LastIndexByte(id, '/')+1:]
}
