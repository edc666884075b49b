package iclshapes

import (
	"errors"

	"fulcrum/internal/option"
)

// Options is the section data.icl_shapes of the configuration.
type Options struct {
	// seed of the world, its dictionary included, and of the episodes; apart from the run's seed
	Seed int64 `koanf:"seed"`
	// training records: the selector's queries, and all candidates
	Records int `koanf:"records" range:"[1,10000000]"`
	// held-out records: asked only
	HeldOut int `koanf:"held_out" range:"[1,10000000]"`
	// episodes that the model learns from, each with a dictionary of its own
	Episodes int `koanf:"episodes" range:"[1,100000000]"`
	// most demonstrations of an episode
	Shots int `koanf:"shots" range:"[1,16]"`
}

// DefaultOptions returns the world and the episodes of exp=icl_shapes.
func DefaultOptions() Options {
	return Options{Seed: 2026, Records: 1200, HeldOut: 300, Episodes: 30000, Shots: 3}
}

// Validate reports what cannot be made.
func (o Options) Validate() error {
	atLeast := func(key string, v, least int) error {
		return option.Want(v >= least, key, "want at least %d, got %d", least, v)
	}
	return errors.Join(atLeast("records", o.Records, 1), atLeast("held_out", o.HeldOut, 1),
		atLeast("episodes", o.Episodes, 1), option.Want(o.Shots >= 1 && o.Shots <= 16, "shots", "want 1 to 16, got %d", o.Shots))
}
