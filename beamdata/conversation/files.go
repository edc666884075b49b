package conversation

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/nearpath"
)

// Files names the files of a bundle, nil = none, and says how they become its sets.
type Files struct {
	Train, Val, Eval, SFT *string
	Demos                 *int    // so many of SFT, else of Train; nil = all
	CheckRecords          *int    // of each set; nil = all
	TrainRatio            float64 // share of Train that trains where there is no Val
	SplitSeed             int64
	MaxSamples            *int // keep the first so many training samples; nil = all

	Open func(path, key string) (Opened, error)
}

// Opened is a file of records.
type Opened struct {
	Source
	Len     int
	Groups  []int // of Split; nil = none
	Unknown []keycheck.Unknown
}

// Bundle opens the files and splits Train where there is no Val. The first samples of each set are decoded. name is the value of
// data.name, and evalName the key of the held-out file.
func (f Files) Bundle(name, evalName string) (*Bundle, error) {
	b := &Bundle{Name: name, EvalName: evalName}
	for _, of := range []struct {
		key  string
		path *string
		set  **Set
	}{{"train", f.Train, &b.Train}, {"val", f.Val, &b.Val}, {evalName, f.Eval, &b.Eval}, {"sft", f.SFT, &b.Demos}} {
		if of.path == nil {
			continue
		}
		src, err := f.Open(*of.path, of.key)
		if _, unread := errors.AsType[*fs.PathError](err); unread { // a folder, say
			return nil, fmt.Errorf("data.%s.%s: %w", name, of.key, err)
		}
		if err != nil {
			return nil, err
		}
		b.Unknown = append(b.Unknown, src.Unknown...)
		if of.key == "train" && f.Val == nil {
			train, val := Split(src.Len, src.Groups, f.TrainRatio, f.SplitSeed)
			b.Train, b.Val = NewSet("train", src.Source, train), NewSet("val", src.Source, val)
			continue
		}
		*of.set = NewSet(of.key, src.Source, Rows(src.Len))
	}
	b.Limit(f.MaxSamples, f.Demos)
	for _, s := range []*Set{b.Train, b.Demos, b.Val, b.Eval} {
		if err := s.check(f.CheckRecords); err != nil {
			return nil, err
		}
	}
	if b.Seal(); cmp.Or(b.Train, b.Val, b.Eval) == nil {
		return nil, fmt.Errorf("data=%s needs a file: data.%s.train=FILE", name, name)
	}
	return b, nil
}

// check decodes the first samples (nil = all) and looks for the files that those of a conversations file name.
func (s *Set) check(records *int) error {
	n := s.Len()
	if records != nil {
		n = min(n, *records)
	}
	for i := range n {
		sample, err := s.Sample(i)
		if err != nil {
			return err
		}
		f, ok := s.source.(*file)
		if !ok {
			continue
		}
		for _, path := range sample.paths() {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("%s: no file %s%s (relative paths start from data.root, else from the folder of the conversations file)",
					f.at(s.rows[i], sample.Name), path, nearpath.Hint(path))
			}
		}
	}
	return nil
}
