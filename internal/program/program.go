// Package program says how this program was called, so that the commands that it prints can be pasted.
package program

import (
	"os"
	"strings"
)

// Name is the program as it was called: run, bin/run, /opt/fulcrum/bin/run; run in a test.
func Name() string {
	if len(os.Args) == 0 || os.Args[0] == "" || strings.HasSuffix(os.Args[0], ".test") {
		return "run"
	}
	if strings.ContainsAny(os.Args[0], " \t'\"$\\") {
		return "'" + strings.ReplaceAll(os.Args[0], "'", `'\''`) + "'"
	}
	return os.Args[0]
}
