//go:build !core

package texts

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/parquet"
)

// A column called id that nobody named refuses no file: numbers with a fraction are left out, bytes are shown as such.
func TestParquetIDs(t *testing.T) {
	for want, id := range map[string]any{"record 1": 7.0, "c3280010": "\xc3\x28\x00\x10", "n1": "n1"} {
		kind := parquet.Text
		if _, number := id.(float64); number {
			kind = parquet.Number
		}
		var b bytes.Buffer
		fields := []parquet.Field{{Name: "id", Kind: kind}, {Name: "source", Kind: parquet.Text}, {Name: "target", Kind: parquet.Text}}
		if err := parquet.Write(&b, fields, slices.Values([][]any{{id, "long", "short"}})); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(write(t, map[string]string{"x.parquet": b.String()}), "x.parquet")
		set, err := openTest(t, path, func(*Options) {})
		if err != nil {
			t.Fatalf("%v: %v", id, err)
		}
		if s, err := set.Sample(0); err != nil || s.Name != want || s.Text() != "long" {
			t.Errorf("%v: got %+v, %v, want the name %s", id, s, err, want)
		}
		_, err = openTest(t, path, func(o *Options) { o.ID = text("id") })
		if asked := kind == parquet.Number; asked != (err != nil) || asked && !strings.Contains(err.Error(), "column id: want text or whole") {
			t.Errorf("%v, asked for: %v", id, err)
		}
	}
}

// A pair of columns that cannot be read leaves its place to one that can.
func TestParquetPairs(t *testing.T) {
	var b bytes.Buffer
	fields := []parquet.Field{{Name: "source", Kind: parquet.Number}, {Name: "target", Kind: parquet.Text},
		{Name: "document", Kind: parquet.Text}, {Name: "summary", Kind: parquet.Text}}
	if err := parquet.Write(&b, fields, slices.Values([][]any{{0.5, "t", "long", "short"}})); err != nil {
		t.Fatal(err)
	}
	set, err := openTest(t, filepath.Join(write(t, map[string]string{"x.parquet": b.String()}), "x.parquet"), func(*Options) {})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := set.Sample(0); err != nil || s.Text() != "long" || s.Reference != "short" {
		t.Errorf("got %+v, %v, want document and summary", s, err)
	}
}
