// Package texts reads text-to-text data: a source and the target to write from it, such as a document and
// its summary, from JSON, JSON Lines and Parquet files.
//
//	b, err := texts.Open(opt)              // or texts.Summaries, built in
//	s, err := b.Train.Sample(i)            // decoded now: s.Messages is the source, s.Reference the target
//
// A sample is a conversation of one turn, so all that token policies do with conversations works here too.
// Files stay on disk: memory grows by some bytes a record.
package texts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/jsonrecords"
	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/jsonwords"
)

type file interface {
	Len() int
	columns() ([]string, error)                  // those of the first record
	read(row int64, c columns) (record, error)   // errors name no place
	value(row int64, key string) (string, error) // under any key or column, as text; "" for none
	at(row int64) string                         // "train.jsonl:12"
	digest() string                              // of the content
	unread(c columns) []keycheck.Unknown         // keys or columns that are not read
}

func openFile(path string) (file, error) {
	if strings.EqualFold(filepath.Ext(path), ".parquet") {
		return openParquet(path)
	}
	f := jsonFile{keys: keycheck.New(filepath.Base(path), "record", nil, extras())}
	row := 0
	x, err := jsonrecords.Scan(path, func(record []byte) {
		jsonrecords.Fields(record, func(key, _ []byte) { f.keys.See(bytes.Trim(key, `"`), func() int { return row }) })
		row++
	})
	f.Index = x
	return f, err
}

// extras are columns that the customary data sets carry besides those that are read.
func extras() []string {
	return []string{"title", "url", "link", "date", "topic", "dataset", "split", "subreddit", "meta", "metadata"}
}

// jsonFile is a JSON array or JSON Lines.
type jsonFile struct {
	*jsonrecords.Index
	keys *keycheck.Keys
}

func (f jsonFile) unread(c columns) []keycheck.Unknown {
	f.keys.Know(append(c.names(), "completions"), nil)
	return f.Unknown(f.keys)
}

func (f jsonFile) columns() ([]string, error) {
	raw, err := f.Read(0)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := jsonwords.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", f.at(0), err)
	}
	return slices.Sorted(maps.Keys(fields)), nil
}

func (f jsonFile) read(row int64, c columns) (record, error) {
	raw, err := f.Read(row)
	if err != nil {
		return record{}, err
	}
	return decode(raw, c)
}

func (f jsonFile) value(row int64, key string) (string, error) {
	raw, err := f.Read(row)
	return conversation.Value(raw, key), err
}

func (f jsonFile) at(row int64) string { return fmt.Sprintf("%s:%d", f.Path, f.Line(row)) }

func (f jsonFile) digest() string { return f.Digest }

// source is one file, or several one after the other.
type source struct {
	files  []file
	cols   []columns
	ends   []int64 // row behind the last of each file
	prefix string
}

// files reads where the records of a path or pattern lie. key is the option that names it.
func (o Options) files(pattern, key string) (out conversation.Opened, err error) {
	paths := []string{pattern}
	if _, err := os.Stat(pattern); err != nil && strings.ContainsAny(pattern, "*?[") { // which may stand in a file's name too
		if paths, err = filepath.Glob(pattern); err != nil { // in the order of names
			return out, fmt.Errorf("data.texts.%s=%s: %w", key, pattern, err)
		}
		if len(paths) == 0 {
			return out, fmt.Errorf("data.texts.%s=%s: no file has such a name", key, pattern)
		}
	}
	s := &source{prefix: o.Prefix}
	for _, path := range paths {
		f, c, err := o.open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return out, fmt.Errorf("data.texts.%s: %s does not exist: want a JSON, JSONL or Parquet file", key, path)
		}
		if err != nil {
			return out, err
		}
		out.Len += f.Len()
		out.Unknown = append(out.Unknown, f.unread(c)...)
		s.files, s.cols, s.ends = append(s.files, f), append(s.cols, c), append(s.ends, int64(out.Len))
	}
	out.Source = s
	return out, nil
}

// open opens a file that has records, and finds the columns that the options name or leave to be found.
func (o Options) open(path string) (file, columns, error) {
	var none columns
	f, err := openFile(path)
	if err != nil {
		return nil, none, err
	}
	if f.Len() == 0 {
		return nil, none, fmt.Errorf("%s holds no record", path)
	}
	has, err := f.columns()
	if err != nil {
		return nil, none, err
	}
	c, err := o.choose(has)
	if p, ok := f.(parquetFile); ok { // what nobody asked for and cannot be read is none
		if flat, unfit := o.choose(p.Flat()); unfit == nil {
			c, err = flat, nil
		}
		if _, unread := p.Column(c.id); unread != nil && o.ID == nil {
			c.id = ""
		}
	}
	if err != nil {
		return nil, none, fmt.Errorf("%s: %w", path, err)
	}
	return f, c, nil
}

// locate returns the number of the file that holds a row, and the row within it.
func (s *source) locate(row int64) (k int, within int64) {
	k = sort.Search(len(s.ends), func(i int) bool { return s.ends[i] > row })
	if k > 0 {
		return k, row - s.ends[k-1]
	}
	return k, row
}

// Cluster implements conversation.Clusterer: texts have no pictures.
func (s *source) Cluster(row int64, by string) (string, error) {
	if by == "image" {
		return "", nil
	}
	k, within := s.locate(row)
	return s.files[k].value(within, by)
}

func (s *source) Sample(row int64) (conversation.Sample, error) {
	k, within := s.locate(row)
	f := s.files[k]
	r, err := f.read(within, s.cols[k])
	if err != nil {
		at := f.at(within)
		if r.id != "" {
			at += " (id " + r.id + ")"
		}
		return conversation.Sample{ID: row}, fmt.Errorf("%s: %w", at, err)
	}
	r.id = cmp.Or(r.id, fmt.Sprintf("record %d", row+1))
	return r.sample(row, s.prefix), nil
}

// Holds reports that every record has a target: one without is an error.
func (s *source) Holds(need conversation.Need) bool { return need == conversation.Target }

// Fingerprint covers the files, the columns read and the prefix.
func (s *source) Fingerprint() string {
	var b strings.Builder
	for i, f := range s.files {
		fmt.Fprintf(&b, "%s %q %q\n", f.digest(), s.cols[i].source, s.cols[i].target)
	}
	fmt.Fprintf(&b, "%q", s.prefix)
	return b.String()
}
