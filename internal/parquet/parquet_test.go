package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// The files of testdata hold the same 250 rows, written by DuckDB 1.5 and parquet-go 0.32 in several
// encodings, compressions and page versions, in pages of some hundred bytes where the writer lets one choose.

// rowOf is row i; summary nil is null.
func rowOf(i int) (id, document string, summary *string) {
	document = fmt.Sprintf("document %d %s é%d", i%7, strings.Repeat("word ", i%5), i)
	if i%11 == 0 {
		document = fmt.Sprintf("document %d", i%3)
	}
	if i%3 != 1 {
		s := fmt.Sprintf("sum %d", i%4)
		summary = &s
	}
	return fmt.Sprint(i*i - 5), document, summary
}

const rows = 250

func TestFiles(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(paths) < 11 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			refused := ""
			for _, codec := range []string{"brotli", "lz4"} {
				if strings.Contains(path, codec) {
					refused = codec
				}
			}
			if refused != "" {
				if _, err := f.Column("document"); err == nil || !strings.Contains(err.Error(), "compression "+refused) ||
					!strings.Contains(err.Error(), "is not supported (supported: uncompressed, snappy, gzip, zstd)") {
					t.Errorf("got %v", err)
				}
				return
			}
			if f.Rows() != rows || !slices.Contains(f.Columns(), "document") {
				t.Errorf("%d rows, columns %v", f.Rows(), f.Columns())
			}
			for _, name := range []string{"tags", "nested", "l", "s"} { // known by name
				if _, err := f.Column(name); slices.Contains(f.Columns(), name) && (err == nil || err.Error() != "column "+name+": want text or whole "+
					"numbers, not nested") {
					t.Errorf("%s: got %v", name, err)
				}
			}
			columns := map[string]*Column{}
			for _, name := range []string{"id", "document", "summary"} {
				if columns[name], err = f.Column(name); err != nil {
					t.Fatal(err)
				}
			}
			pages := len(columns["document"].pages)
			if strings.HasPrefix(filepath.Base(path), "go_") && pages < 2 {
				t.Errorf("one page: nothing is sought")
			}
			order := rand.New(rand.NewPCG(1, 2)).Perm(rows)
			for _, i := range slices.Concat(order, order[:50]) {
				id, document, summary := rowOf(i)
				want := map[string]*string{"id": &id, "document": &document, "summary": summary}
				for name, c := range columns {
					got, ok, err := c.Text(int64(i))
					if err != nil {
						t.Fatalf("row %d: %v", i, err)
					}
					if ok != (want[name] != nil) || ok && got != *want[name] {
						t.Errorf("row %d, %s: got %q, %t", i, name, got, ok)
					}
				}
			}
			if _, _, err := columns["id"].Text(rows); err == nil || !strings.Contains(err.Error(), "row 250 of 250") {
				t.Errorf("behind the end: got %v", err)
			}
			if _, err := f.Column("documents"); err == nil || !strings.Contains(err.Error(),
				`unknown column "documents" (did you mean document?)`) {
				t.Errorf("another column: got %v", err)
			}
		})
	}
}

// A text column of another type is refused, so is what is no file of this format.
func TestRefused(t *testing.T) {
	f, err := Open("testdata/go_plain_gzip_v1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Column("score"); err == nil || !strings.Contains(err.Error(), "column score: want text or whole numbers") {
		t.Errorf("a column of floats: got %v", err)
	}
	good, err := os.ReadFile("testdata/go_plain_gzip_v1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string][]byte{
		"too short for a Parquet file":       []byte("PAR1"),
		"it does not end with PAR1":          good[:len(good)-1],
		"a footer of 4294967295 bytes":       append(slices.Clone(good[:len(good)-8]), "\xff\xff\xff\xffPAR1"...),
		"footer: 0 rows, but 250 in its row": rowsZeroed(t, good),
		"encrypted":                          append(slices.Clone(good[:len(good)-4]), "PARE"...),
	} {
		path := filepath.Join(t.TempDir(), "x.parquet")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// rowsZeroed changes the file's own count of rows: field 3, an i64 of 250, behind the list of columns.
func rowsZeroed(t *testing.T, good []byte) []byte {
	t.Helper()
	count := []byte{0x16, 0xf4, 0x03} // field 3 follows field 2, i64; 250 as a zigzag number
	at := bytes.Index(good, append(slices.Clone(count), 0x19))
	if at < 0 {
		t.Fatal("the count of rows is not where it was")
	}
	out := slices.Clone(good)
	out[at+1], out[at+2] = 0x80, 0x00
	return out
}

func TestAChangedFileIsNoticed(t *testing.T) {
	good, err := os.ReadFile("testdata/duck_snappy_v1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	write := func(data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(good)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Column("document")
	if err != nil {
		t.Fatal(err)
	}
	write(append(good, "PAR1"...))
	if _, _, err := c.Text(3); err == nil || !strings.Contains(err.Error(), "changed while it was in use") {
		t.Errorf("got %v", err)
	}
}

func TestSnappy(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"a literal", "\x03\x08abc", "abc"},
		{"a copy that overlaps", "\x06\x00a\x05\x01", "aaaaaa"},
		{"a copy with four bytes of distance", "\x06\x08abc\x0b\x03\x00\x00\x00", "abcabc"},
	} {
		if got, err := decompress(format.Snappy, []byte(c.data), len(c.want)); err != nil || string(got) != c.want {
			t.Errorf("%s: got %q, %v", c.name, got, err)
		}
	}
	huge := "\xff\xff\xff\x7f\x08abc" // promises 256 MB
	for _, bad := range []string{"", "\x03", "\x06\x08ab", "\x06\x00a\x15\x02", "\x07\x08abc", huge} {
		if got, err := decompress(format.Snappy, []byte(bad), 6); err == nil {
			t.Errorf("%q gives %q", bad, got)
		}
	}
	if _, err := decompress(format.Snappy, []byte(huge), 1<<28-1); err == nil {
		t.Error("eight bytes are read as 256 MB")
	}
}

// A damaged file is an error or other text, never a panic or a flood of memory.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"duck_zstd_v2", "duck_gzip_v1", "go_deltabytes", "go_dict_snappy_v1", "go_delta_zstd_v1"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x.parquet")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := Open(path)
		if err != nil {
			return
		}
		for _, name := range p.Columns() {
			c, err := p.Column(name)
			if err != nil {
				continue
			}
			for row := range min(p.Rows(), 300) {
				if _, _, err := c.Text(int64(row)); err != nil {
					break // the same page would be tried again
				}
			}
		}
	})
}

func BenchmarkText(b *testing.B) {
	f, err := Open("testdata/go_dict_snappy_v1.parquet")
	if err != nil {
		b.Fatal(err)
	}
	c, err := f.Column("document")
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		c.cache.Clear()
		if _, _, err := c.Text(int64(i * 37 % rows)); err != nil {
			b.Fatal(err)
		}
	}
}

// Whole numbers are what their column says they are: without a sign, or a date, which is no number. pyarrow 25 wrote the file.
// A file may name the kinds by their logical types alone.
func TestKindsOfNumbers(t *testing.T) {
	const path = "testdata/kinds/arrow.parquet"
	kindsOfNumbers(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(text) - 8
	begin := end - int(binary.LittleEndian.Uint32(text[end:]))
	var meta footer
	if _, err := decode(text[begin:end], &meta); err != nil {
		t.Fatal(err)
	}
	for _, e := range meta.Schema {
		if e.Converted = nil; e.Children == nil && e.Logical == nil {
			t.Errorf("column %s has no logical type", e.Name)
		}
	}
	b, err := thrift.Marshal(new(thrift.CompactProtocol), meta)
	if err != nil {
		t.Fatal(err)
	}
	text = append(binary.LittleEndian.AppendUint32(append(text[:begin:begin], b...), uint32(len(b))), magic...)
	logical := filepath.Join(t.TempDir(), "logical.parquet")
	if err := os.WriteFile(logical, text, 0o644); err != nil {
		t.Fatal(err)
	}
	kindsOfNumbers(t, logical)
}

func kindsOfNumbers(t *testing.T, path string) {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"u8": "0 1 128 255 7", "i8": "0 -1 -128 127 7", "u32": "0 1 2147483648 4294967295 7",
		"u64": "0 1 9223372036854775808 18446744073709551615 7"} {
		c, err := f.Column(name)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for row := range f.Rows() {
			text, _, err := c.Text(int64(row))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", name, got, want)
		}
	}
	for _, name := range []string{"date", "time", "stamp", "decimal"} {
		if _, err := f.Column(name); err == nil || !strings.Contains(err.Error(), "column "+name+": want text or whole numbers") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
