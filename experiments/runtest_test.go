package experiments_test

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"fulcrum/internal/testkit/runtest"
)

type (
	beamRecord = runtest.BeamRecord
	process    = runtest.Process
	result     = runtest.Result
)

const (
	fixtureRows = runtest.FixtureRows
	patience    = runtest.Patience
)

var (
	beamFiles     = runtest.BeamFiles
	beamLines     = runtest.BeamLines
	beamText      = runtest.BeamText
	beams         = runtest.Beams
	copied        = runtest.Copied
	exists        = runtest.Exists
	folder        = runtest.Folder
	itoa          = strconv.Itoa
	lastLine      = runtest.LastLine
	leftovers     = runtest.Leftovers
	mustRun       = runtest.MustRun
	outcomeOf     = runtest.OutcomeOf
	read          = runtest.Read
	readRows      = runtest.ReadRows
	records       = runtest.Records
	refused       = runtest.Refused
	run           = runtest.Run
	small         = runtest.Small
	start         = runtest.Start
	startProgram  = runtest.StartProgram
	startWith     = runtest.StartWith
	tiny          = runtest.Tiny
	tinySummaries = runtest.TinySummaries
	trained       = runtest.Trained
	undrawn       = runtest.Undrawn
	verifies      = runtest.Verifies
	with          = runtest.With
	write         = runtest.Write
	writePicture  = runtest.WritePicture
	program       = runtest.Program
	shared        = runtest.Shared
)

func TestMain(m *testing.M) { os.Exit(runtest.Main(m)) }

var stated sync.Once

// allStates is a finished run of tiny without plots, with the states of all its epochs, made once.
func allStates(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(shared(), "all_states")
	stated.Do(func() {
		mustRun(t, tiny("report.plots=false", "logging.progress=false", "checkpoint.keep_states=null", "hydra.run.dir="+dir)...)
	})
	return dir
}

func half(s string) string { return s[:len(s)/2] }
