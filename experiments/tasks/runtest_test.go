package tasks_test

import (
	"os"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/runtest"
)

type (
	beamRecord = runtest.BeamRecord
	result     = runtest.Result
)

const (
	fixtureRows = runtest.FixtureRows
)

var (
	beamText      = runtest.BeamText
	beams         = runtest.Beams
	exists        = runtest.Exists
	folder        = runtest.Folder
	leftovers     = runtest.Leftovers
	mustRun       = runtest.MustRun
	outcomeOf     = runtest.OutcomeOf
	read          = runtest.Read
	readJSON      = golden.JSON
	readRows      = runtest.ReadRows
	records       = runtest.Records
	refused       = runtest.Refused
	run           = runtest.Run
	small         = runtest.Small
	start         = runtest.Start
	startWith     = runtest.StartWith
	tiny          = runtest.Tiny
	tinySummaries = runtest.TinySummaries
	trained       = runtest.Trained
	vqaFiles      = runtest.VqaFiles
	with          = runtest.With
	write         = runtest.Write
	writeLines    = runtest.WriteLines
	writePicture  = runtest.WritePicture
)

func TestMain(m *testing.M) { os.Exit(runtest.Main(m)) }

// readIf returns a file's text, "" where there is none.
func readIf(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
