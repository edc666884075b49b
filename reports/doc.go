// Package reports turns what happens in a run into files that people and tools read, and reads them
// back: metrics.jsonl, TensorBoard events, run.log and the progress line while it runs; summary.json,
// evals.jsonl, plots and report.md at its end; comparisons of runs with intervals and a verdict.
//
// It knows metric names, units and the run folder. It knows no tensor, no policy and no phase: a
// phase is a name and a range of steps.
//
//	log, err := reports.OpenLog(dir, reports.LogOptions{LoggingOptions: reports.DefaultLoggingOptions()})
//	err = log.Record("step", "grpo", epoch, step, globalStep, map[string]any{"loss": 0.19, "kl": 0.04})
//	err = reports.WriteReport(dir)
package reports
