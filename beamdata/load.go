// Package beamdata turns files into the queries, candidate pools, recorded candidates and exact
// rewards that the phases train on. It knows no phase, no policy and no tensor library.
//
//	b, err := beamdata.Load(opt)                 // opt is the section data of the configuration
//	for i := range b.RCE.Len() {
//		pool := b.RCE.Pool(i)                    // [K] rows of b.RCE.Table
//		best := b.RCE.Candidate(i, 0)            // positions in pool, reward, recorded scores
//	}
//	reward, accuracy := b.Online.Scorer.Score(i, positions)
//
// Files are streamed; whatever is skipped is counted by reason in Bundle.Counts, and whatever
// contradicts itself is refused with one line that names file, query and field.
package beamdata

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"strings"

	"fulcrum/beamdata/keycheck"
	"fulcrum/beamdata/shapes"
	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/rewardutil/recorded"
)

// Bundle holds all data of a run: training, validation and evaluation sets over one table.
type Bundle struct {
	Name      string
	Format    string // of the beam file: legacy or rl; empty for built-in data
	Synthetic bool
	Notice    string // one plain sentence about the data, for the first output line and the report

	RCE     *Set // recorded beams for sft and rce
	Records *Set // recorded groups for offline GRPO
	Online  *Set // train queries with a scorer, for sampled groups
	Val     *Set // held out from training; chooses checkpoints
	Eval    *Set // held out from every choice
	All     *Set // training and validation queries in file order, for predict

	EvalName    string             // "dev"
	Shots       int                // picks per selection
	Counts      map[string]int     // sizes, and what was skipped by reason
	Skipped     map[string]string  // by reason: place of the first skipped record
	Unknown     []keycheck.Unknown // keys that records hold and nothing reads
	Fingerprint string             // over all sets and so over the split
	Items       *Items             // texts by row; nil where unknown
	Features    []string           // what selector.features=[standard] stands for; nil: poolfeatures has it
	LeftOut     string             // which of them the data lack columns of, in a sentence; "" = none
	Sealed      *Set               // nothing but the ids of questions that nothing may score (data.sealed)
	HeldOut     string             // what left the training pools (data.pool.held_out), in a sentence; "" = nothing to say

	images  map[int64]int64 // of queries by row, as beam files say
	blank   *int64          // the picture that findBlank found
	cluster string          // Options.Cluster
}

// Text returns "question — answer" of an embedding row, or "" where it is unknown.
func (b *Bundle) Text(row int) string {
	x := b.Items.at(row)
	if x.question == "" {
		return ""
	}
	return x.question + " — " + x.answer
}

// Load reads the data named by opt. Sets without a file, and empty sets, are nil. Everything is read and checked here:
// later accesses cannot fail.
func Load(opt Options) (*Bundle, error) {
	d, err := opt.validate()
	if err != nil {
		return nil, err
	}
	if opt.Format == "conversations" || d.sets == nil {
		return nil, fmt.Errorf("data.name=%s data.format=%s: conversations and texts are for the token policies "+
			"(policy=qwen2_5_vl, policy=seq2seq); "+
			"the selector reads beams", opt.Name, opt.Format)
	}
	l := &loader{opt: opt, bundle: &Bundle{Name: opt.Name, Counts: map[string]int{}, Skipped: map[string]string{},
		images: map[int64]int64{}, cluster: opt.Cluster}}
	if err := d.sets(l); err != nil {
		return nil, err
	}
	if f := opt.Reward.Field; f != nil && !l.trajectories && !opt.QueriesOnly {
		return nil, fmt.Errorf("data.reward.field=%s: it names a number of the trajectories of an RL file, and data.name=%s reads none "+
			"here: take data=beams data.beams=FILE with rl_data", *f, opt.Name)
	}
	b := l.bundle
	if b.All == nil && b.Eval != nil { // nothing was split
		b.findBlank(b.Eval.IDs)
	}
	drop := opt.Pool.HeldOut == "drop" && !opt.Compat
	if opt.Sealed != nil && !opt.OpenSealed {
		if !drop {
			return nil, fmt.Errorf("data.sealed=%s: its questions would stay in the pools of training queries: want data.pool.held_out=drop "+
				"and compat=null", *opt.Sealed)
		}
		if err := l.sealed(*opt.Sealed); err != nil {
			return nil, err
		}
	}
	if drop && !opt.QueriesOnly {
		b.dropHeldOut()
	}
	for _, s := range list.Filter([]*Set{b.RCE, b.Records, b.Online, b.Val, b.Eval, b.All}, func(s *Set) bool { return s != nil }) {
		if s.items = b.Items; !opt.Compat { // the reference takes the first of equals
			s.ties = &opt.SplitSeed
		}
	}
	shared := b.Records == b.RCE
	for _, s := range []**Set{&b.RCE, &b.Records, &b.Online} {
		*s = (*s).withLevels(opt.Reward)
	}
	if shared {
		b.Records = b.RCE
	}
	if opt.Reward.Weight(recorded.TaskLevel) != 0 && !opt.QueriesOnly {
		for _, s := range onePerFile(b.RCE, b.Records) {
			b.countTaskLevels(s)
		}
	}
	for _, s := range []**Set{&b.RCE, &b.Records, &b.Online, &b.Val, &b.Eval, &b.All} {
		if (*s).Len() == 0 {
			*s = nil
		}
	}
	b.seal()
	return b, nil
}

type loader struct {
	opt    Options
	table  *Table
	build  *builder
	bundle *Bundle

	trajectories bool     // an RL file was read
	absent       []string // files that data.root may hold and does not

	prior   *shapes.Prior // nil: unknown
	answers *answers
}

func (l *loader) open(path string) error {
	table, err := OpenTable(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missing(path, "data.embeddings", err)
	}
	if err != nil {
		return err
	}
	l.table = table
	l.build = newBuilder(l.opt, table.Rows, l.bundle.Counts)
	return nil
}

// blame adds the name of the table to an error about an id outside it, and whether the table looks transposed.
func (t *Table) blame(path string, err error) error {
	var outside *outsideError
	if !errors.As(err, &outside) || path == "" {
		return err
	}
	switch {
	case outside.id < 0:
		return err
	case outside.id < int64(t.Dim):
		return fmt.Errorf("%w, but inside the %d columns of %s: is the table transposed? want [rows, dim], one row an id: save x.T", err,
			t.Dim, path)
	case outside.id == int64(t.Rows):
		return fmt.Errorf("%w: ids count the rows of %s from 0: are these counted from 1, or is it the table of "+
			"other queries?", err, path)
	}
	return fmt.Errorf("%w: ids are rows of %s, counted from 0: is it the table of these queries, and whole?", err, path)
}

// read reads a beam file and adds what it skipped to the counts, named after the key.
func (l *loader) read(path, key string) (*beamFile, error) {
	f, err := readBeams(path, key, l.table.Rows, l.opt)
	if err != nil {
		return nil, l.table.blame(option.Or(l.opt.Embeddings, ""), err)
	}
	l.trajectories = l.trajectories || f.format == "rl"
	l.bundle.Format = cmp.Or(l.bundle.Format, f.format)
	maps.Copy(l.bundle.images, f.images)
	for reason, n := range f.counts {
		if l.bundle.Counts[reason] == 0 {
			l.bundle.Skipped[reason] = f.first[reason]
		}
		l.bundle.Counts[reason] += n
	}
	l.bundle.Unknown = append(l.bundle.Unknown, f.unknown...)
	return f, f.tooManyLost(l.opt)
}

// readerSet returns all queries of a reward table as a set with its scorer and the candidates of f.
func (l *loader) readerSet(name string, r *Reader, f *beamFile) (*Set, error) {
	st, err := l.build.fromReader(r, f)
	if err != nil {
		return nil, err
	}
	if err := f.tooManyLost(l.opt); err != nil {
		return nil, err
	}
	s := newSet(name, l.table, st)
	s.Scorer = r
	return s, nil
}

func (l *loader) fileSet(name string, f *beamFile) (*Set, error) {
	st, err := l.build.fromFile(f)
	if err != nil {
		return nil, err
	}
	return newSet(name, l.table, st), nil
}

// eval loads the evaluation set from explicit or default paths ("" = none).
func (l *loader) eval(beams, reader string) error {
	key := "data.eval.reader"
	if l.opt.OpenSealed {
		beams, reader, key = "", *l.opt.Sealed, "data.sealed"
	}
	if beams == "" && reader == "" {
		return nil
	}
	var f *beamFile
	var err error
	if beams != "" {
		if f, err = l.read(beams, "data.eval.beams"); err != nil {
			return err
		}
	}
	b := l.bundle
	b.EvalName = splitName(cmp.Or(reader, beams))
	if reader == "" {
		b.Eval, err = l.fileSet(b.EvalName, f)
		return err
	}
	r, err := readReader(reader, key, l.table.Rows)
	if err != nil {
		return err
	}
	l.addAnswers(r)
	b.Eval, err = l.readerSet(b.EvalName, r, f)
	return err
}

// splitName guesses the split from a file name: reader_dev.npz, beams_test_2shot.json; else "eval".
func splitName(path string) string {
	m := regexp.MustCompile(`^(?:reader|beams|rl)_([A-Za-z]+)`).FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return "eval"
	}
	return strings.ToLower(m[1])
}

func (b *Bundle) seal() {
	h := digest.New()
	for _, part := range []struct {
		name string
		set  *Set
	}{{"rce", b.RCE}, {"records", b.Records}, {"online", b.Online}, {"val", b.Val}, {"eval", b.Eval}} {
		if part.set == nil {
			continue
		}
		b.Counts[part.name+"_queries"] = part.set.Len()
		fmt.Fprintln(h, part.name, part.set.Fingerprint())
	}
	b.Fingerprint = h.Hex()
}
