package iclshapes

import (
	"errors"

	"fulcrum/internal/option"
)

// Options is the section data.icl_shapes of the configuration.
type Options struct {
	// seed of the episodes, apart from the run's seed
	Seed int64 `koanf:"seed"`
	// episodes that the model learns from, each with a dictionary of its own
	Episodes int `koanf:"episodes" range:"[1,100000000]"`
	// most demonstrations of an episode
	Shots int `koanf:"shots" range:"[1,16]"`
	// lists of names without pictures that the model learns from besides
	Lists int `koanf:"lists" range:"[0,100000000]"`
}

// DefaultOptions returns the episodes.
func DefaultOptions() Options {
	return Options{Seed: 2026, Episodes: 30000, Shots: 4, Lists: 10000}
}

// Validate reports what cannot be made.
func (o Options) Validate() error {
	atLeast := func(key string, v, least int) error {
		return option.Want(v >= least, key, "want at least %d, got %d", least, v)
	}
	return errors.Join(atLeast("episodes", o.Episodes, 1),
		atLeast("lists", o.Lists, 0), option.Want(o.Shots >= 1 && o.Shots <= 16, "shots", "want 1 to 16, got %d", o.Shots))
}
