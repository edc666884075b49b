package main_test

import (
	"strconv"

	"fulcrum/internal/testkit/runtest"
)

type (
	beamRecord = runtest.BeamRecord
	result     = runtest.Result
)

const (
	fixtureRows = runtest.FixtureRows
	patience    = runtest.Patience
)

var (
	beamFiles    = runtest.BeamFiles
	beamLines    = runtest.BeamLines
	beamText     = runtest.BeamText
	beams        = runtest.Beams
	change       = runtest.Change
	copied       = runtest.Copied
	exists       = runtest.Exists
	folder       = runtest.Folder
	itoa         = strconv.Itoa
	mustRun      = runtest.MustRun
	outcomeOf    = runtest.OutcomeOf
	read         = runtest.Read
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
	verifies     = runtest.Verifies
	vqaFiles     = runtest.VqaFiles
	write        = runtest.Write
	writePicture = runtest.WritePicture
	program      = runtest.Program
	shared       = runtest.Shared
)

func half(s string) string { return s[:len(s)/2] }
