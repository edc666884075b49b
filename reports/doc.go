// Package reports holds, in its rooms, what turns a run into files that people and tools read, and reads them back.
// A room imports only rooms above it in this list:
//
//	page         number formats, markdown documents, HTML pages
//	webchart     the charts of web pages
//	stats        paired comparisons: intervals, tests, corrections, verdicts; numbers in, numbers out
//	record       what a run writes while it goes on and reads back: rows, TensorBoard, evaluations, summary, manifest
//	looks        the ledger of how often held-out questions were scored
//	sweeps       jobs of a sweep as settings: ranked, counted, as a table for terminals
//	curves       rows in series of bounded size, for the board and for watching
//	tracker      what a run and its trackers of experiments know of each other
//	mlflow       mirrors the rows to an MLflow server
//	wandb        mirrors the rows to a file that W&B's client uploads
//	chart        figures, panels, layers and axes → SVG and PNG
//	results      the stages of a run, compared
//	arms         runs over seeds, compared
//	runreport    report.md, table and plots of a run
//	sweepreport  report.md, table and plots of a sweep or study
//	compare      reports and differences of several runs
//	export       runs, metrics and evaluations as tables for programs
//	published    what published tables of metrics allow to conclude
//	verify       recomputes every number of a report from its records
//	board        runs and sweeps as a local web page, live, and as static files
//
// They know metric names, units and the run folder. They know no tensor, no policy and no phase: a phase is a name and
// a range of steps.
//
//	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: record.DefaultLoggingOptions()})
//	err = log.Record("step", "grpo", epoch, step, globalStep, map[string]any{"loss": 0.19, "kl": 0.04})
//	err = runreport.WriteReport(dir)
package reports
