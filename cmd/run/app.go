package main

import (
	"context"

	"fulcrum/configs"
)

// App is what runs a composed config. It lives in package experiments; this package only parses the
// command line.
type App interface {
	// Schema is the type of every config of ours.
	Schema() (*configs.Schema, error)
	// Run does one job.
	Run(ctx context.Context, c *configs.Composed) error
	// Sweep does the jobs of a multirun; detached, in a process of its own.
	Sweep(ctx context.Context, req configs.Request, detached bool) error
	// Jobs lists the jobs of a multirun as YAML, and runs none.
	Jobs(req configs.Request) (string, error)
	// Verb does a command that is not a run: report, resume, …
	Verb(ctx context.Context, name string, args []string) error
}
