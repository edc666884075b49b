package sweep_test

import (
	"os"
	"strconv"
	"testing"

	"fulcrum/internal/testkit/runtest"
)

type (
	process = runtest.Process
)

var (
	beams        = runtest.Beams
	exists       = runtest.Exists
	folder       = runtest.Folder
	itoa         = strconv.Itoa
	lastLine     = runtest.LastLine
	leftovers    = runtest.Leftovers
	mustRun      = runtest.MustRun
	needsAnnexes = runtest.NeedsAnnexes
	outcomeOf    = runtest.OutcomeOf
	read         = runtest.Read
	readRows     = runtest.ReadRows
	records      = runtest.Records
	refused      = runtest.Refused
	run          = runtest.Run
	small        = runtest.Small
	start        = runtest.Start
	startProgram = runtest.StartProgram
	startWith    = runtest.StartWith
	tiny         = runtest.Tiny
	trained      = runtest.Trained
	undrawn      = runtest.Undrawn
	write        = runtest.Write
	writeLines   = runtest.WriteLines
	program      = runtest.Program
)

func TestMain(m *testing.M) { os.Exit(runtest.Main(m)) }
