package shapes

import "fulcrum/internal/option"

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
	// beams per query, as the published OK-VQA beams have
	BeamWidth int `koanf:"beam_width" range:"[1,inf)" constant:"true"`
}

// DefaultOptions returns the set that exp=okvqa_v3 trains on.
func DefaultOptions() Options {
	return Options{Seed: 2026, TrainQueries: 2400, ReaderQuestions: 300, ValQueries: 300, DevQueries: 900, PoolSize: 32, Shots: 2,
		BeamWidth: 5}
}

// Validate checks what one key alone can't show.
func (o Options) Validate() error {
	most := max(o.TrainQueries+o.ReaderQuestions-questionsPerScene, 0)
	return option.Want(o.PoolSize <= most, "pool_size", "want at most %d (the training questions without a query's own scene), got %d",
		most, o.PoolSize)
}
