package record

// LoggingOptions is the section logging.
type LoggingOptions struct {
	// progress on stderr: an updating line on a terminal, plain lines otherwise
	Progress bool `koanf:"progress"`
	// write events.out.tfevents.* beside metrics.jsonl
	TensorBoard bool `koanf:"tensorboard"`
	// write wandb/offline-run-*/run-*.wandb, which `wandb sync` uploads; nothing is sent by the run itself
	WandB bool `koanf:"wandb"`
	// write every n-th step to metrics.jsonl and TensorBoard
	LogEverySteps int `koanf:"log_every_steps" range:"[1,inf)" also:"logging_steps,log_every,log_interval"`

	// say on stderr and in run.log when there was no step, evaluation or message for so long; 0 = never. A
	// run that lives has a step in ten minutes
	StallMinutes float64 `koanf:"stall_minutes" range:"[0,inf)" constant:"true"`
}

func DefaultLoggingOptions() LoggingOptions {
	return LoggingOptions{Progress: true, TensorBoard: true, LogEverySteps: 1, StallMinutes: 10}
}

// EvidenceOptions is the section evidence.
type EvidenceOptions struct {
	// file that counts looks at held-out questions (statistics.md); null = looks.jsonl in the output root
	Ledger *string `koanf:"ledger"`
}

// ReportOptions is the section report.
type ReportOptions struct {
	// draw plots/ beside the training and at its end
	Plots bool `koanf:"plots"`
	// least time between two drawings, s: one takes a second of another core at low priority, and nobody looks more often
	PlotSeconds float64 `koanf:"plot_seconds" range:"[0,inf)" constant:"true"`
	// what a run prints at its end: short = the first metric's table and the verdict in 15 lines; full = every table
	Console string `koanf:"console" enum:"short,full"`
	// figures for a paper, in figures/
	Figure FigureOptions `koanf:"figure"`
}

// FigureOptions says how wide figures for a paper are. Below 150 mm texts are smaller too.
type FigureOptions struct {
	// width on paper, mm: each plot is drawn as figures/NAME.pdf and NAME.svg too, when the run ends; null = none
	Width *float64 `koanf:"width" range:"[50,500]"`
}

// DefaultReportOptions draws at most every 5 s, and ends in a few lines.
func DefaultReportOptions() ReportOptions {
	return ReportOptions{Plots: true, PlotSeconds: 5, Console: "short"}
}
