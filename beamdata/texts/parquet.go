package texts

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"unicode/utf8"

	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/digest"
	"fulcrum/internal/parquet"
)

// parquetFile is a Parquet file with text columns.
type parquetFile struct {
	*parquet.File
	hash string
}

func openParquet(path string) (file, error) {
	f, err := parquet.Open(path)
	if err != nil {
		return nil, err
	}
	hash, _, err := digest.File(path)
	return parquetFile{f, hash}, err
}

func (f parquetFile) Len() int                   { return f.Rows() }
func (f parquetFile) columns() ([]string, error) { return f.Columns(), nil }
func (f parquetFile) at(row int64) string        { return fmt.Sprintf("%s: row %d", f.Path, row+1) }
func (f parquetFile) digest() string             { return f.hash }

func (f parquetFile) value(row int64, key string) (text string, err error) {
	if column, unread := f.Column(key); unread == nil {
		if text, _, err = column.Text(row); err != nil {
			err = fmt.Errorf("%s: %w", f.at(row), err)
		}
	}
	return text, err
}

func (f parquetFile) unread(c columns) []keycheck.Unknown {
	keys := keycheck.New(filepath.Base(f.Path), "row", c.names(), extras())
	for _, name := range f.Columns() {
		keys.See([]byte(name), func() int { return 1 })
	}
	out := keys.Unknown()
	for i := range out {
		out[i].Count = f.Rows()
	}
	return out
}

func (f parquetFile) read(row int64, c columns) (record, error) {
	var r record
	for _, part := range []struct {
		name string
		into *string
	}{{c.id, &r.id}, {c.source, &r.source}, {c.target, &r.target}} {
		if part.name == "" { // no id
			continue
		}
		column, err := f.Column(part.name)
		if err != nil {
			return r, err
		}
		text, ok, err := column.Text(row)
		switch {
		case err != nil:
			return r, err
		case !ok && part.into != &r.id:
			return r, fmt.Errorf("%s: got null, want a text", part.name)
		case !utf8.ValidString(text) && part.into == &r.id: // as of a UUID
			text = hex.EncodeToString([]byte(text))
		case !utf8.ValidString(text):
			return r, fmt.Errorf("%s: bytes that are no UTF-8, want a text", part.name)
		}
		*part.into = text
	}
	return r, r.check(c)
}
