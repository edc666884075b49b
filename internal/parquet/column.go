package parquet

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/parquet-go/parquet-go/format"

	"fulcrum/internal/option"
	"fulcrum/internal/recent"
)

// Column is one column of a file. It is safe for concurrent use.
type Column struct {
	file  *File
	leaf  leaf
	pages []page

	mu           sync.Mutex
	cache, dicts recent.Cache[*page, []*string] // the values of pages and dictionaries; nil stands for null
}

// page is where the values of some rows lie.
type page struct {
	first      int64 // row of the file
	rows       int64
	at         int64 // of the data, behind the header
	compressed int64
	size       int64 // of the data when decompressed
	codec      format.CompressionCodec
	encoding   format.Encoding
	version    int   // 1 or 2
	levels     int64 // version 2: bytes of repetition and definition levels in front, never compressed
	packed     bool  // the rest is compressed
	dict       *page // dictionary of the chunk, nil without one
}

const (
	maxPage = 256 << 20 // bytes of a page
	maxRows = 1 << 24   // rows of a page: a damaged count must not ask for all memory
	headers = 1 << 10   // read for a page header at first; statistics in it may take more
)

// index reads the headers of all pages.
func (c *Column) index() error {
	f, err := c.file.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	row := int64(0)
	for g, group := range c.file.groups {
		if c.leaf.index >= len(group.Chunks) {
			return fmt.Errorf("row group %d lacks the column", g)
		}
		chunk := group.Chunks[c.leaf.index]
		if chunk.File != "" {
			return fmt.Errorf("row group %d lies in another file", g)
		}
		if chunk.Meta == nil {
			return fmt.Errorf("row group %d has no metadata of the column (encrypted?)", g)
		}
		if err := c.indexChunk(f, chunk.Meta, row, group.Rows); err != nil {
			return fmt.Errorf("row group %d: %w", g, err)
		}
		row += group.Rows
	}
	return nil
}

// indexChunk reads the headers of one chunk, whose first row is given.
func (c *Column) indexChunk(f io.ReaderAt, meta *chunkMeta, row, rows int64) error {
	if err := checkCodec(meta.Codec); err != nil {
		return err
	}
	at := meta.At
	if d := meta.Dict; d > 0 && d < at {
		at = d
	}
	end := at + meta.Packed
	if at < 0 || end < at || end > c.file.Size {
		return fmt.Errorf("pages from byte %d to %d of a file of %d", at, end, c.file.Size)
	}
	var dict *page
	for last := row + rows; row < last; {
		if at >= end {
			return fmt.Errorf("%d rows without a page", last-row)
		}
		head, n, err := readHeader(f, at, end)
		if err != nil {
			return fmt.Errorf("page at byte %d: %w", at, err)
		}
		p := page{first: row, at: at + n, size: int64(head.Size), compressed: int64(head.Packed), codec: meta.Codec, version: 1, packed: true,
			dict: dict}
		if p.size < 0 || p.size > maxPage || p.compressed < 0 || p.compressed > end-p.at {
			return fmt.Errorf("page at byte %d: %d bytes, %d decompressed", at, p.compressed, p.size)
		}
		at = p.at + p.compressed
		switch {
		case head.Kind == format.DictionaryPage && head.Dict != nil:
			p.rows, p.encoding = int64(head.Dict.Values), head.Dict.Encoding
			if dict != nil || p.rows < 0 || p.rows > maxRows {
				return errors.New("a second dictionary, or a damaged one")
			}
			dict = &p
			continue
		case head.Kind == format.DataPage && head.Data != nil:
			p.rows, p.encoding = int64(head.Data.Values), head.Data.Encoding
			if c.leaf.optional && head.Data.Levels != format.RLE {
				return fmt.Errorf("definition levels in encoding %d: want RLE", head.Data.Levels)
			}
		case head.Kind == format.DataPageV2 && head.Data2 != nil:
			h := head.Data2
			p.version, p.rows, p.encoding, p.levels = 2, int64(h.Values), h.Encoding, int64(h.Levels)
			if h.Repeats != 0 || h.Levels < 0 || p.levels > p.compressed || p.levels > p.size {
				return fmt.Errorf("page at byte %d: damaged levels", at)
			}
			p.packed = option.Or(h.Packed, true)
		case head.Kind <= format.DataPageV2 && head.Kind != format.IndexPage:
			return fmt.Errorf("page at byte %d: a damaged header", at)
		default:
			continue // an index page
		}
		if p.rows > maxRows {
			return fmt.Errorf("a page of %d rows: want at most %d", p.rows, maxRows)
		}
		if p.rows < 0 || p.rows > last-row {
			return fmt.Errorf("a page of %d rows where %d are left", p.rows, last-row)
		}
		if err := checkEncoding(p.encoding, c.leaf.kind, dict != nil); err != nil {
			return err
		}
		if p.rows > 0 {
			row += p.rows
			c.pages = append(c.pages, p)
		}
	}
	return nil
}

// readHeader reads the page header at a place and returns its length.
func readHeader(f io.ReaderAt, at, end int64) (head pageHeader, n int64, err error) {
	for size := int64(headers); ; size *= 4 {
		size = min(size, end-at)
		buf := make([]byte, size)
		if _, err := f.ReadAt(buf, at); err != nil {
			return head, 0, err
		}
		head = pageHeader{}
		n, err := decode(buf, &head)
		if errors.Is(err, errShort) && size < end-at {
			continue
		}
		return head, int64(n), err
	}
}

// Text returns the value of a row; ok is false for null. A whole number is written in decimal.
func (c *Column) Text(row int64) (text string, ok bool, err error) {
	if row < 0 || row >= c.file.rows {
		return "", false, fmt.Errorf("row %d of %d", row, c.file.rows)
	}
	k := sort.Search(len(c.pages), func(i int) bool { return c.pages[i].first > row }) - 1
	p := &c.pages[k]
	values, err := c.values(p)
	if err != nil {
		return "", false, fmt.Errorf("column %s, rows %d to %d: %w", c.leaf.name, p.first, p.first+p.rows-1, err)
	}
	v := values[row-p.first]
	if v == nil {
		return "", false, nil
	}
	return *v, true, nil
}

// How many decoded pages and dictionaries stay in memory: a batch asks for its rows more than once.
const (
	keptPages = 16
	keptDicts = 4
)

// values decodes a page, or finds it among the last.
func (c *Column) values(p *page) ([]*string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.cache.Get(p); ok {
		return v, nil
	}
	f, err := c.file.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var dict []*string
	if p.dict != nil && (p.encoding == format.RLEDictionary || p.encoding == plainDictionary) {
		var ok bool
		if dict, ok = c.dicts.Get(p.dict); !ok {
			data, err := p.dict.read(f)
			if err != nil {
				return nil, fmt.Errorf("dictionary: %w", err)
			}
			if dict, err = plain(data, c.leaf, int(p.dict.rows)); err != nil {
				return nil, fmt.Errorf("dictionary: %w", err)
			}
			c.dicts.Put(p.dict, dict)
			c.dicts.Trim()
		}
	}
	data, err := p.read(f)
	if err != nil {
		return nil, err
	}
	values, err := p.decode(data, c.leaf, dict)
	if err != nil {
		return nil, err
	}
	c.cache.Put(p, values)
	c.cache.Trim()
	return values, nil
}

// read returns the page's bytes, decompressed.
func (p *page) read(f io.ReaderAt) ([]byte, error) {
	raw := make([]byte, p.compressed)
	if _, err := f.ReadAt(raw, p.at); err != nil {
		return nil, err
	}
	if !p.packed {
		return raw, nil
	}
	rest, err := decompress(p.codec, raw[p.levels:], int(p.size-p.levels))
	if err != nil {
		return nil, err
	}
	if p.levels > 0 {
		rest = append(raw[:p.levels:p.levels], rest...)
	}
	return rest, nil
}
