package leverplus_test

import (
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/runtest"
)

type (
	result = runtest.Result
)

const (
	fixtureRows = runtest.FixtureRows
)

var (
	beams     = runtest.Beams
	exists    = runtest.Exists
	folder    = runtest.Folder
	leftovers = runtest.Leftovers
	mustRun   = runtest.MustRun
	outcomeOf = runtest.OutcomeOf
	read      = runtest.Read
	readJSON  = golden.JSON
	records   = runtest.Records
	refused   = runtest.Refused
	run       = runtest.Run
	small     = runtest.Small
	trained   = runtest.Trained
	write     = runtest.Write
	program   = runtest.Program
)
