package lvlm_test

import (
	"os"
	"strconv"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/runtest"
)

type (
	process = runtest.Process
	result  = runtest.Result
)

var (
	folder   = runtest.Folder
	itoa     = strconv.Itoa
	mustRun  = runtest.MustRun
	read     = runtest.Read
	readJSON = golden.JSON
	run      = runtest.Run
	start    = runtest.Start
	write    = runtest.Write
)

// readIf returns a file's text, "" where there is none.
func readIf(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

func hasEnded(p *process) bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}
