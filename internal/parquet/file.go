// Package parquet reads columns of text and whole numbers from Parquet files, row by row and on demand, and writes tables.
//
//	f, err := parquet.Open("train.parquet")
//	col, err := f.Column("document")
//	text, ok, err := col.Text(7)           // ok is false for null
//
// It reads what data sets of texts are made of: flat columns, optional or required, plain, dictionary and delta
// encoded, in pages of either version, uncompressed or in Snappy, gzip or Zstandard. Nested and repeated
// columns are left out, other codecs are refused by name. A file is found out about by its footer and page
// headers; a page is decoded when a row of it is asked for, and the last few stay in memory.
//
// Write writes tables of numbers and texts in the plainest way that the format has.
//
// The metadata are decoded by parquet-go's Thrift. Its reader of files, as any general one, seeks only where there is a page
// index, which pyarrow and pandas do not write, and a damaged footer ends its process: docs/log/engineering.md has the
// measurements. Source: the format's specification, github.com/apache/parquet-format.
package parquet

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/recent"
	"fulcrum/internal/registry"
	"fulcrum/internal/regular"
)

// File is an open Parquet file. It is safe for concurrent use and holds no file descriptor between calls.
type File struct {
	regular.Kept
	rows   int64
	leaves []leaf
	groups []*group

	mu      sync.Mutex
	columns map[string]*Column
}

// leaf is one column of the schema that can be read.
type leaf struct {
	name     string
	index    int // among the leaves of the whole schema: the place in a row group
	kind     format.Type
	optional bool
	unsigned bool
	measure  bool // a date, a time or a decimal, which its number alone does not say; a list or a group
}

const magic = "PAR1"

// maxFooter bounds what a damaged length makes us read.
const maxFooter = 256 << 20

// Open reads the footer: columns, row groups.
func Open(path string) (*File, error) {
	f, kept, err := regular.Keep(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &File{Kept: kept, columns: map[string]*Column{}}
	if err := p.readFooter(f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func (p *File) readFooter(f io.ReaderAt) error {
	tail := make([]byte, 8)
	if p.Size < int64(len(magic)+len(tail)) {
		return errors.New("too short for a Parquet file")
	}
	if _, err := f.ReadAt(tail, p.Size-8); err != nil {
		return err
	}
	if string(tail[4:]) == "PARE" {
		return errors.New("an encrypted Parquet file: want a plain one")
	}
	if string(tail[4:]) != magic {
		return errors.New("not a Parquet file, or one cut short: it does not end with PAR1")
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > p.Size-int64(len(magic)+len(tail)) || n > maxFooter {
		return fmt.Errorf("a footer of %d bytes in a file of %d", n, p.Size)
	}
	buf := make([]byte, n)
	if _, err := f.ReadAt(buf, p.Size-8-n); err != nil {
		return err
	}
	var meta footer
	if _, err := decode(buf, &meta); err != nil {
		return fmt.Errorf("footer: %w", err)
	}
	if err := p.readSchema(meta.Schema); err != nil {
		return fmt.Errorf("footer: %w", err)
	}
	p.groups = meta.Groups
	for _, g := range p.groups {
		if g.Rows < 0 {
			return errors.New("footer: a damaged row group")
		}
		if p.rows += g.Rows; p.rows < 0 {
			return errors.New("footer: too many rows")
		}
	}
	if p.rows != meta.Rows {
		return fmt.Errorf("footer: %d rows, but %d in its row groups", meta.Rows, p.rows)
	}
	return nil
}

// readSchema walks the tree of columns, which is written depth first, and keeps the flat leaves.
func (p *File) readSchema(elements []*element) error {
	index := 0
	var walk func(at, depth int, repeated bool) (next int, err error)
	walk = func(at, depth int, repeated bool) (int, error) {
		if at >= len(elements) || depth > maxDepth {
			return 0, errors.New("a damaged schema")
		}
		e := elements[at]
		repeated = repeated || e.Repetition == format.Repeated
		if depth == 1 && (repeated || e.Children != nil) {
			p.leaves = append(p.leaves, leaf{name: e.Name, measure: true}) // known by name, and not read
		}
		if e.Children == nil {
			if depth == 1 && !repeated {
				as, of := option.Or(e.Converted, -1), option.Or(e.Logical, logical{})
				unsigned := as >= deprecated.Uint8 && as <= deprecated.Uint64 || of.Integer != nil && !of.Integer.Signed
				of.Integer = nil // no measure
				p.leaves = append(p.leaves, leaf{name: e.Name, index: index, kind: option.Or(e.Kind, 0),
					optional: e.Repetition == format.Optional, unsigned: unsigned,
					measure: of != (logical{}) || as >= deprecated.Decimal && as <= deprecated.TimestampMicros})
			}
			index++
			return at + 1, nil
		}
		next, err := at+1, error(nil)
		for range min(int(*e.Children), len(elements)) {
			if next, err = walk(next, depth+1, repeated); err != nil {
				return 0, err
			}
		}
		return next, nil
	}
	_, err := walk(0, 0, false)
	return err
}

func (p *File) Rows() int { return int(p.rows) }

// Columns returns the names of the columns, in the file's order, those that Column refuses among them.
func (p *File) Columns() []string { return list.Map(p.leaves, func(l leaf) string { return l.name }) }

// Flat returns those of them that Column reads.
func (p *File) Flat() []string {
	is := func(l leaf) bool {
		return !l.measure && (l.kind == format.ByteArray || l.kind == format.Int32 || l.kind == format.Int64)
	}
	return list.Map(list.Filter(p.leaves, is), func(l leaf) string { return l.name })
}

// Column returns a column of text or whole numbers. The first call reads the headers of its pages.
func (p *File) Column(name string) (*Column, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.columns[name]; c != nil {
		return c, nil
	}
	at := slices.IndexFunc(p.leaves, func(l leaf) bool { return l.name == name })
	if at < 0 {
		return nil, registry.Unknown("column", name, p.Columns())
	}
	l := p.leaves[at]
	if !slices.Contains(p.Flat(), name) {
		return nil, fmt.Errorf("column %s: want text or whole numbers, not nested", name)
	}
	one := func([]*string) int { return 1 }
	c := &Column{file: p, leaf: l, cache: recent.Cache[*page, []*string]{Limit: keptPages, Size: one},
		dicts: recent.Cache[*page, []*string]{Limit: keptDicts, Size: one}}
	if err := c.index(); err != nil {
		return nil, fmt.Errorf("column %s: %w", name, err)
	}
	p.columns[name] = c
	return c, nil
}

func checkCodec(codec format.CompressionCodec) error {
	switch codec {
	case format.Uncompressed, format.Snappy, format.Gzip, format.Zstd:
		return nil
	}
	name := strings.ToLower(codec.String())
	if strings.HasSuffix(name, "(?)") {
		name = fmt.Sprintf("number %d", codec)
	}
	return fmt.Errorf("compression %s is not supported (supported: uncompressed, snappy, gzip, zstd)", name)
}

// decompress returns exactly size bytes.
func decompress(codec format.CompressionCodec, data []byte, size int) ([]byte, error) {
	var out []byte
	var err error
	switch codec {
	case format.Uncompressed:
		out = data
	case format.Snappy:
		var n int
		if n, err = snappy.DecodedLen(data); err == nil && (n != size || size > 32*len(data)) { // three bytes copy 64 at most
			err = snappy.ErrCorrupt
		}
		if err == nil {
			out, err = snappy.Decode(nil, data)
		}
	case format.Gzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			out, err = io.ReadAll(io.LimitReader(r, int64(size)+1))
		}
	case format.Zstd:
		if size == 0 { // an empty page may be no frame at all
			return nil, nil
		}
		var d *zstd.Decoder
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage)); err == nil {
			out, err = d.DecodeAll(data, make([]byte, 0, min(size, 64*len(data))))
			d.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	if len(out) != size {
		return nil, fmt.Errorf("%d bytes when decompressed, want %d", len(out), size)
	}
	return out, nil
}
