//go:build !core

package parquet

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"slices"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Kind is what a written column holds.
type Kind int

// Kinds of written columns, each of which may also hold nothing (null).
const (
	Bool   Kind = iota // bool
	Whole              // int: 64 bits
	Number             // float64
	Text               // string
)

// Field is a column to write.
type Field struct {
	Name string
	Kind Kind
}

// rowsPerGroup bounds what a writer holds.
const rowsPerGroup = 50_000

// Write writes rows as a Parquet file: plain values without compression, nil as null. A cell is of its column's kind or
// nil; a row may be shorter than the columns.
func Write(w io.Writer, columns []Field, rows iter.Seq[[]any]) error {
	out := &writer{w: w, fields: columns, buffers: make([]buffer, len(columns))}
	out.write([]byte(magic))
	for row := range rows {
		for i := range columns {
			var cell any
			if i < len(row) {
				cell = row[i]
			}
			if err := out.buffers[i].add(columns[i].Kind, cell); err != nil {
				return fmt.Errorf("column %s: %w", columns[i].Name, err)
			}
		}
		if out.held++; out.held == rowsPerGroup {
			out.group()
		}
		if out.err != nil {
			return out.err
		}
	}
	if out.held > 0 {
		out.group()
	}
	out.footer()
	return out.err
}

// writer counts what it has written; the first error stays.
type writer struct {
	w       io.Writer
	at      int64
	err     error
	fields  []Field
	buffers []buffer
	held    int // rows in the buffers
	meta    footer
}

func (w *writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.at += int64(len(b))
	}
}

// buffer holds the values of one column of a row group.
type buffer struct {
	values []byte
	bits   int      // of a Bool column
	runs   [][2]int // presence: how many rows in a row have a value (1) or none (0)
}

// kinds are those of the columns that a cell may stand in.
var kinds = map[reflect.Type]Kind{reflect.TypeFor[bool](): Bool, reflect.TypeFor[int](): Whole, reflect.TypeFor[float64](): Number,
	reflect.TypeFor[string](): Text}

func (b *buffer) add(kind Kind, cell any) error {
	present := 1
	if held, ok := kinds[reflect.TypeOf(cell)]; ok && held != kind {
		return fmt.Errorf("%v in a column of another kind", cell)
	}
	switch v := cell.(type) {
	case nil:
		present = 0
	case bool:
		if b.bits%8 == 0 {
			b.values = append(b.values, 0)
		}
		if v {
			b.values[len(b.values)-1] |= 1 << (b.bits % 8)
		}
		b.bits++
	case int:
		b.values = binary.LittleEndian.AppendUint64(b.values, uint64(v))
	case float64:
		b.values = binary.LittleEndian.AppendUint64(b.values, math.Float64bits(v))
	case string:
		b.values = append(binary.LittleEndian.AppendUint32(b.values, uint32(len(v))), v...)
	default:
		return fmt.Errorf("a value of type %T", cell)
	}
	if n := len(b.runs); n > 0 && b.runs[n-1][1] == present {
		b.runs[n-1][0]++
	} else {
		b.runs = append(b.runs, [2]int{1, present})
	}
	return nil
}

// page is the data page of the column: definition levels (run lengths behind their size), then the values.
func (b *buffer) page() []byte {
	var levels []byte
	for _, run := range b.runs {
		levels = append(binary.AppendUvarint(levels, uint64(run[0])<<1), byte(run[1]))
	}
	return slices.Concat(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels, b.values)
}

// physical is the type of a kind in the file.
func physical(k Kind) format.Type {
	return [...]format.Type{format.Boolean, format.Int64, format.Double, format.ByteArray}[k]
}

// group writes what the buffers hold as one row group.
func (w *writer) group() {
	g, begin := &group{Rows: int64(w.held)}, w.at
	for i, f := range w.fields {
		data, at := w.buffers[i].page(), w.at
		size := int32(len(data))
		w.encode(pageHeader{Size: size, Packed: size, Data: &dataHeader{Values: int32(w.held), Encoding: format.Plain, Levels: format.RLE,
			Repeats: format.RLE}})
		w.write(data)
		g.Chunks = append(g.Chunks, &chunk{At: at, Meta: &chunkMeta{Kind: physical(f.Kind),
			Encodings: []format.Encoding{format.Plain, format.RLE}, Names: []string{f.Name}, Values: g.Rows,
			Unpacked: w.at - at, Packed: w.at - at, At: at}})
		w.buffers[i] = buffer{}
	}
	g.Size = w.at - begin
	w.meta.Rows += g.Rows
	w.meta.Groups = append(w.meta.Groups, g)
	w.held = 0
}

// footer ends the file.
func (w *writer) footer() {
	w.meta.Version, w.meta.By = 1, "fulcrum"
	w.meta.Schema = []*element{{Name: "schema", Children: new(int32(len(w.fields)))}}
	for _, f := range w.fields {
		e := &element{Kind: new(physical(f.Kind)), Repetition: format.Optional, Name: f.Name}
		if f.Kind == Text {
			e.Converted = new(deprecated.UTF8)
		}
		w.meta.Schema = append(w.meta.Schema, e)
	}
	begin := w.at
	w.encode(w.meta)
	w.write(append(binary.LittleEndian.AppendUint32(nil, uint32(w.at-begin)), magic...))
}

// encode writes metadata.
func (w *writer) encode(v any) {
	b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
	if w.err = cmp.Or(w.err, err); err == nil {
		w.write(b)
	}
}
