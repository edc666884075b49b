package beamdata

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"fulcrum/beamdata/split"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
)

// beamKeys are the keys that all data of beam files reads.
var beamKeys = []string{"beams", "records", "reader", "eval.beams", "eval.reader", "sealed", "embeddings", "format", "pool", "pool_size",
	"legacy_pool", "reward", "max_skipped_share", "skip_fallback", "require_positive_query"}

// beamsData reads the beam files, reward tables and embeddings named by the options.
func beamsData() Dataset {
	return Dataset{
		Name:  "beams",
		Reads: append([]string{"val_beams", "train_ratio"}, beamKeys...),
		Files: func(o Options) []*string {
			return []*string{o.Beams, o.Records, o.ValBeams, o.Embeddings, o.Reader, o.Eval.Beams, o.Eval.Reader, o.Sealed}
		},
		Check: func(o Options) error {
			some := o.Beams != nil || o.Records != nil || o.Reader != nil || o.Eval.Beams != nil || o.Eval.Reader != nil
			return errors.Join(
				option.Want(some, "beams", "data=beams needs a beam file: data.beams=FILE (a reward table, data.reader, is not needed)"),
				option.Want(o.Embeddings != nil, "embeddings", "data=beams needs an embedding table: data.embeddings=FILE"),
			)
		},
		sets: (*loader).beams,
	}
}

// beams loads explicit files: data.beams (and data.records) with a seeded split or data.val_beams, an
// optional reward table data.reader, an optional evaluation set.
func (l *loader) beams() error {
	opt, b := l.opt, l.bundle
	if err := l.open(option.Or(opt.Embeddings, "")); err != nil {
		return err
	}
	if err := l.loadItems(option.Or(opt.Reader, ""), option.Or(opt.Eval.Reader, ""), option.Or(opt.Beams, "")); err != nil {
		return err
	}
	var reader *Reader
	if opt.Reader != nil {
		var err error
		if reader, err = readReader(*opt.Reader, "data.reader", l.table.Rows); err != nil {
			return err
		}
		l.addAnswers(reader)
	}
	var keys []string // of the file that is split
	var rce, records, valSet *Set
	for _, of := range []struct {
		name string
		path *string
		key  string
		set  **Set
	}{{"rce", opt.Beams, "data.beams", &rce}, {"records", opt.Records, "data.records", &records},
		{"val", opt.ValBeams, "data.val_beams", &valSet}} {
		if of.path == nil {
			continue
		}
		f, err := l.read(*of.path, of.key)
		if err != nil {
			return err
		}
		b.Shots = max(b.Shots, f.shots)
		if of.name == "rce" || of.name == "records" && opt.Beams == nil {
			keys = f.keys
		}
		if reader == nil {
			*of.set, err = l.fileSet(of.name, f)
		} else if *of.set, err = l.readerSet(of.name, reader, f); err == nil {
			*of.set, err = l.inFileOrder(*of.set, f)
		}
		if err != nil {
			return err
		}
	}
	rce, records = cmp.Or(rce, records), cmp.Or(records, rce)
	online := rce
	if reader != nil && rce == nil {
		var err error
		if online, err = l.readerSet("online", reader, nil); err != nil {
			return err
		}
	}
	for _, s := range []*Set{rce, records, valSet} {
		if s != nil && s.Shots != 0 && s.Shots != b.Shots {
			return fmt.Errorf("data: candidates of %d and of %d picks: the files of one run must agree", s.Shots, b.Shots)
		}
	}
	if online != nil {
		if err := l.split(rce, records, online, valSet, keys); err != nil {
			return err
		}
	}
	b.Notice = "your own beam files"
	return l.eval(option.Or(opt.Eval.Beams, ""), option.Or(opt.Eval.Reader, ""))
}

// split takes the validation queries out of the training sets. Two files may hold candidates of one query;
// the split is over the union of their ids, so a held-out query is held out of both.
// keys are those of the file, for the reference's split.
func (l *loader) split(rce, records, online, valSet *Set, keys []string) error {
	b := l.bundle
	union := slices.Clone(online.IDs)
	if records != nil {
		union = append(union, records.IDs...)
	}
	slices.Sort(union)
	union = slices.Compact(union)
	b.findBlank(union)
	var isVal map[int64]bool
	switch {
	case valSet != nil:
		isVal = list.Set(valSet.IDs)
		for _, id := range online.IDs {
			if isVal[id] {
				b.Counts["train_query_is_also_in_val_beams"]++
			}
		}
	case l.opt.Compat:
		val, err := compatVal(keys, online.IDs, l.opt.TrainRatio)
		if err != nil {
			return err
		}
		isVal = val
	default:
		isVal = split.ByID(union, b.image, l.opt.TrainRatio, l.opt.SplitSeed)
	}
	train := func(s *Set, name string) *Set {
		if s == nil {
			return nil
		}
		return l.limit(s.Filter(func(i int) bool {
			return !isVal[s.IDs[i]] && (name == "online" || l.opt.QueriesOnly || s.NumCandidates(i) > 0)
		})).named(name)
	}
	b.All = online.named("all")
	b.RCE = train(rce, "rce")
	b.Records = b.RCE
	if records != rce {
		b.Records = train(records, "records")
	}
	if online.Scorer != nil {
		b.Online = train(online, "online")
	}
	b.Val = valSet
	if valSet == nil {
		b.Val = online.Filter(func(i int) bool { return isVal[online.IDs[i]] }).named("val")
	}
	return nil
}

// inFileOrder returns the queries of f from a reward table's set. Queries that the table lacks have been
// counted; if every query needs an answer, they are refused.
func (l *loader) inFileOrder(s *Set, f *beamFile) (*Set, error) {
	at := make(map[int64]int, s.Len())
	for i, id := range s.IDs {
		at[id] = i
	}
	indices := make([]int, 0, len(f.ids))
	for _, id := range f.ids {
		i, ok := at[id]
		if ok {
			indices = append(indices, i)
		} else if l.opt.QueriesOnly {
			return nil, fmt.Errorf("%s: query %d has no row in data.reader", f.path, id)
		}
	}
	return s.Subset(indices), nil
}
