package texts

import (
	"cmp"
	"errors"
	"fmt"

	"fulcrum/beamdata/conversation"
)

// Open finds the records of the files and splits them. The first CheckRecords of each set are decoded, so that
// mistakes show before anything is trained.
func Open(opt Options) (*conversation.Bundle, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("data.texts.%w", err)
	}
	b := &conversation.Bundle{Name: "texts", EvalName: "test"}
	if opt.Train != nil {
		src, err := open(*opt.Train, "train", opt)
		if err != nil {
			return nil, err
		}
		b.Unknown = append(b.Unknown, src.unread...)
		if opt.Val == nil {
			train, val := conversation.Split(src.len(), nil, opt.TrainRatio, opt.SplitSeed)
			b.Train, b.Val = conversation.NewSet("train", src, train), conversation.NewSet("val", src, val)
		} else {
			b.Train = src.all("train")
		}
		if opt.MaxSamples != nil {
			b.Train = b.Train.First(*opt.MaxSamples)
		}
	}
	for _, other := range []struct {
		key  string
		path *string
		set  **conversation.Set
	}{{"val", opt.Val, &b.Val}, {"test", opt.Test, &b.Eval}} {
		if other.path == nil {
			continue
		}
		src, err := open(*other.path, other.key, opt)
		if err != nil {
			return nil, err
		}
		b.Unknown = append(b.Unknown, src.unread...)
		*other.set = src.all(other.key)
	}
	for _, s := range []*conversation.Set{b.Train, b.Val, b.Eval} {
		if err := check(s, opt.CheckRecords); err != nil {
			return nil, err
		}
	}
	return finish(b, opt)
}

// finish chooses the demonstrations and seals the bundle.
func finish(b *conversation.Bundle, opt Options) (*conversation.Bundle, error) {
	if opt.Demos != nil {
		b.Demos = cmp.Or(b.Demos, b.Train).First(*opt.Demos)
	}
	if b.Seal(); cmp.Or(b.Train, b.Val, b.Eval) == nil {
		return nil, errors.New("data=texts needs a file: data.texts.train=FILE")
	}
	return b, nil
}

// check decodes the first records of a set; nil = all.
func check(s *conversation.Set, records *int) error {
	n := s.Len()
	if records != nil {
		n = min(n, *records)
	}
	for i := range n {
		if _, err := s.Sample(i); err != nil {
			return err
		}
	}
	return nil
}
