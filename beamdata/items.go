package beamdata

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"

	"fulcrum/beamdata/jsonstream"
	"fulcrum/beamdata/keycheck"
	"fulcrum/beamdata/poolfeatures"
	"fulcrum/beamdata/shapes"
	"fulcrum/internal/regular"
)

// Items holds questions and answers by embedding row, for reports and for the reader's accuracy.
type Items struct {
	rows  []item
	file  string // that was read; of several the last
	facts *poolfeatures.Facts
}

type item struct {
	question, answer string
	image            int64
	pictured         bool                 // image is known
	cluster          string               // value of the key Options.Cluster, where it is another than those of here
	counts           []shapes.AnswerCount // answer_counts; nil where the row is unknown
	tags             []string             // of the picture; nil where the row is unknown
	file             string               // where it was read,
	line             int                  // from 1; 0 where the row is unknown
}

// at returns the item of a row, empty where it is unknown.
func (it *Items) at(row int) item {
	if it == nil || row < 0 || row >= len(it.rows) {
		return item{}
	}
	return it.rows[row]
}

// image returns the picture of a row, by its line of items.jsonl, else by its record in a beam file.
func (b *Bundle) image(row int) (int64, bool) {
	x := b.Items.at(row)
	if !x.pictured {
		x.image, x.pictured = b.images[int64(row)]
	}
	return x.image, x.pictured && (b.blank == nil || x.image != *b.blank)
}

// findBlank finds a picture of most of some queries: it is none, for the split, for pools and for clusters.
func (b *Bundle) findBlank(ids []int64) {
	n := map[int64]int{}
	for _, id := range ids {
		if im, ok := b.image(int(id)); ok {
			if n[im]++; n[im] > max(1, len(ids)/2) {
				b.blank = &im
			}
		}
	}
}

// Cluster returns the cluster of a row's question: its image, or the value of the key Options.Cluster; "" if unknown.
// Questions of one cluster are not independent.
func (b *Bundle) Cluster(row int) string {
	x := b.Items.at(row)
	switch b.cluster {
	case "", "image_id":
		if image, ok := b.image(row); ok {
			return strconv.FormatInt(image, 10)
		}
	case "question":
		return x.question
	case "answer":
		return x.answer
	}
	return x.cluster
}

// readItems adds the lines of an items.jsonl: {"idx", "image_id", "question", "answer",
// "answer_counts", "tags"}; other keys are counted, cluster's value is kept. Items whose idx is not below rows are counted.
func (it *Items) readItems(path, cluster string, rows int) (outside int, unknown []keycheck.Unknown, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	it.file = path
	s := jsonstream.New(f)
	keys := keycheck.New(filepath.Base(path), "item", []string{"idx", "image_id", "question", "answer", "answer_counts", "tags"},
		[]string{"question_id", "split"})
	for s.Peek() != 0 {
		var x item
		idx, err := x.read(s, keys, cluster)
		if err != nil {
			return 0, nil, err
		}
		if idx < 0 {
			return 0, nil, s.Errorf("an item without idx, its row in data.embeddings")
		}
		if idx >= int64(rows) {
			outside++
			continue
		}
		if int(idx) >= len(it.rows) {
			it.rows = slices.Grow(it.rows, int(idx)+1-len(it.rows))[:idx+1]
		}
		was := it.rows[idx]
		x.file, x.line = was.file, was.line
		if was.line > 0 && !reflect.DeepEqual(x, was) { // a line that says the same again is harmless
			return 0, nil, s.Errorf("idx %d has other values than in line %d of %s: want one line for each idx", idx, was.line, was.file)
		}
		x.file, x.line = path, s.Line()
		it.rows[idx] = x
	}
	return outside, keys.Unknown(), s.Err()
}

// read reads a line and returns its idx, -1 where it has none. The value of the key cluster is kept.
func (x *item) read(s *jsonstream.Scanner, keys *keycheck.Keys, cluster string) (idx int64, err error) {
	idx = -1
	err = s.Object(func(key []byte) (err error) {
		name := string(key) // reading on overwrites key
		if null, err := s.Null(); null || err != nil {
			return err
		}
		switch name {
		case "idx":
			idx, err = s.Integer()
		case "image_id":
			x.image, err = s.Integer()
			x.pictured = true
		case "question":
			x.question, err = s.String()
		case "answer":
			x.answer, err = s.String()
		case "answer_counts":
			x.counts = []shapes.AnswerCount{}
			err = s.Object(func(key []byte) error {
				name := string(key)
				n, err := s.Integer()
				if n < 0 {
					err = s.Errorf("%q was given %d times: want 0 or more", name, n)
				}
				x.counts = append(x.counts, shapes.AnswerCount{Answer: name, Count: int(n)})
				return err
			})
		case "tags":
			x.tags = []string{}
			err = s.List(func() error {
				tag, err := s.String()
				x.tags = append(x.tags, tag)
				return err
			})
		case cluster:
			x.cluster, err = s.Scalar()
		default:
			keys.See([]byte(name), s.Line)
			err = s.Skip()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	return idx, err
}

// Facts returns what features may read about the rows of the set's table, where a file says so.
func (s *Set) Facts() *poolfeatures.Facts {
	it := s.items
	if it == nil {
		return &poolfeatures.Facts{}
	}
	if it.facts == nil {
		it.facts = &poolfeatures.Facts{File: it.file}
		for _, x := range it.rows {
			it.facts.Add(x.question, len(x.counts), func(i int) (string, int) { return x.counts[i].Answer, x.counts[i].Count }, x.tags)
		}
	}
	return it.facts
}
