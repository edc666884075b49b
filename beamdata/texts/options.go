package texts

import (
	"errors"

	"fulcrum/internal/option"
)

// Options is the section data.texts of the configuration.
type Options struct {
	// JSON, JSONL or Parquet file to train on, or a pattern (data/train-*.parquet); split by data.train_ratio without
	// val
	Train *string `koanf:"train"`
	// file or pattern of the validation records, instead of a split
	Val *string `koanf:"val"`
	// file or pattern of held-out records: reported, never used for a choice
	Test *string `koanf:"test"`

	// column of the text to read (null = with target: source/target, document/summary, article/highlights,
	// text/summary, dialogue/summary)
	Source *string `koanf:"source"`
	// column of the text to write
	Target *string `koanf:"target"`
	// column of the record's own id, for messages (null = id where there is one)
	ID *string `koanf:"id" constant:"true"`

	// text put before every source, such as 'summarize: ' for T5; also with data=summaries
	Prefix string `koanf:"prefix"`
	// how many training samples sft imitates (null = all): demonstrations are dear, rewards cheap
	Demos *int `koanf:"demos" range:"[1,inf)"`

	// how many records of each set are decoded before training (null = all)
	CheckRecords *int `koanf:"check_records" range:"[0,inf)" constant:"true"`

	// Set by the program from the keys of data.
	TrainRatio float64 `koanf:"-"` // share of Train that trains where there is no Val
	SplitSeed  int64   `koanf:"-"`
	MaxSamples *int    `koanf:"-"` // keep the first so many training samples; nil = all
}

// DefaultOptions checks a thousand records at start.
func DefaultOptions() Options {
	check := 1000
	return Options{CheckRecords: &check, TrainRatio: 0.8}
}

// Validate reports columns that can't be told apart.
func (o Options) Validate() error {
	var errs []error
	for _, c := range []struct {
		key  string
		name *string
	}{{"source", o.Source}, {"target", o.Target}, {"id", o.ID}} {
		if c.name != nil && *c.name == "" {
			errs = append(errs, option.Errorf(c.key, "want the name of a column, got an empty text"))
		}
	}
	if o.Source != nil && o.Target != nil && *o.Source == *o.Target {
		errs = append(errs, option.Errorf("target", "the same column as source, %s", *o.Target))
	}
	return errors.Join(errs...)
}
