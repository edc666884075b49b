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
	// Sweep does the jobs of a multirun. base is the request that jobs are composed from.
	Sweep(ctx context.Context, base configs.Request, jobs [][]string, master *configs.Composed) error
	// Verb does a command that is not a run: report, resume, …
	Verb(ctx context.Context, name string, args []string) error
}
