package shapes

import (
	"errors"

	"fulcrum/internal/option"
)

// Options sizes the set. The set's seed is apart from a run's seed, so that all runs train on one set.
type Options struct {
	// seed of the set itself, apart from the run's seed
	Seed int64 `koanf:"seed"`
	// questions that train; all are candidates too
	TrainQueries int `koanf:"train_queries" range:"[1,10000000]"`
	// further training questions: candidates and the reader's prior, never queries
	ReaderQuestions int `koanf:"reader_questions" range:"[1,10000000]"`
	// questions that validate, on scenes of their own
	ValQueries int `koanf:"val_queries" range:"[0,10000000]"`
	// held-out questions, on scenes of their own
	DevQueries int `koanf:"dev_queries" range:"[0,10000000]"`
	// candidates per query
	PoolSize int `koanf:"pool_size" range:"[8,inf)"`
	// examples per beam
	Shots int `koanf:"shots" range:"[1,8]"`
	// beams per query
	BeamWidth int `koanf:"beam_width" range:"[1,inf)"`
}

// DefaultOptions returns the set that exp=okvqa_v3 trains on.
func DefaultOptions() Options {
	return Options{Seed: 2026, TrainQueries: 2400, ReaderQuestions: 300, ValQueries: 300, DevQueries: 900, PoolSize: 32, Shots: 2,
		BeamWidth: 5}
}

// Validate reports sizes that can't be built.
func (o Options) Validate() error {
	errs := []error{
		o.validateSizes(),
		least("reader_questions", o.ReaderQuestions, 1), least("pool_size", o.PoolSize, 8),
		least("shots", o.Shots, 1), least("beam_width", o.BeamWidth, 1),
	}
	if o.Shots > 8 {
		errs = append(errs, option.Errorf("shots", "want at most 8, got %d", o.Shots))
	}
	if most := o.TrainQueries + o.ReaderQuestions - questionsPerScene; o.PoolSize > most && o.PoolSize >= 8 {
		errs = append(errs, option.Errorf("pool_size", "want at most %d (the training questions without a query's own scene), got %d",
			max(most, 0), o.PoolSize))
	}
	return errors.Join(errs...)
}

// validateSizes reports numbers of questions that can't be drawn.
func (o Options) validateSizes() error {
	return errors.Join(
		least("train_queries", o.TrainQueries, 1), least("reader_questions", o.ReaderQuestions, 0),
		least("val_queries", o.ValQueries, 0), least("dev_queries", o.DevQueries, 0),
	)
}

func least(key string, v, low int) error {
	if v < low {
		return option.Errorf(key, "want at least %d, got %d", low, v)
	}
	return nil
}
