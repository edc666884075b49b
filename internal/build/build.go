// Package build says which program this is: its version and the revision that it was built from.
package build

import (
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

// Name returns version and revision, by which reports of another program can be told apart.
func Name() string { return strings.TrimSpace(Version + " " + Commit()) }
