package record_test

import (
	"fmt"
	"os"

	"fulcrum/reports/record"
)

func ExampleLog() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: record.DefaultLoggingOptions()})
	if err != nil {
		panic(err)
	}
	if err := log.Record("step", "rce", 1, 1, 1, map[string]any{"loss": 7.9}); err != nil {
		panic(err)
	}
	if err := log.Close(); err != nil {
		panic(err)
	}
	run, err := record.ReadRun(dir)
	if err != nil {
		panic(err)
	}
	fmt.Println(run.StepsOf("rce").Column("loss"))
	// Output: [7.9]
}
