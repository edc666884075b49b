package icl_test

import (
	"fulcrum/internal/testkit/runtest"
)

type (
	process = runtest.Process
	result  = runtest.Result
)

var (
	folder   = runtest.Folder
	itoa     = runtest.Itoa
	mustRun  = runtest.MustRun
	read     = runtest.Read
	readIf   = runtest.ReadIf
	readJSON = runtest.ReadJSON
	run      = runtest.Run
	start    = runtest.Start
	write    = runtest.Write
)
