package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
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
	rows    int64
	groups  []func(*compact)
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
	out := append(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels...)
	return append(out, b.values...)
}

// Numbers of the format (parquet.thrift).
const (
	optionalField = 1
	convertedUTF8 = 0
	typeBool      = 0
	typeDouble    = 5
)

// physical is the type of a kind in the file.
func physical(k Kind) int64 { return [...]int64{typeBool, typeInt64, typeDouble, typeByteArray}[k] }

// group writes what the buffers hold as one row group.
func (w *writer) group() {
	type chunk struct{ at, size int64 }
	chunks := make([]chunk, len(w.fields))
	begin, rows := w.at, int64(w.held)
	for i := range w.fields {
		data := w.buffers[i].page()
		var head compact
		head.structure(
			head.whole(1, 0), head.whole(2, int64(len(data))), head.whole(3, int64(len(data))),
			head.object(5, head.whole(1, rows), head.whole(2, encodingPlain), head.whole(3, encodingRLE), head.whole(4, encodingRLE)))
		chunks[i] = chunk{w.at, int64(len(head.b) + len(data))}
		w.write(head.b)
		w.write(data)
		w.buffers[i] = buffer{}
	}
	size := w.at - begin
	w.rows += rows
	w.held = 0
	w.groups = append(w.groups, func(c *compact) {
		c.structure(
			c.structures(1, len(chunks), func(i int) {
				f, at := w.fields[i], chunks[i]
				c.structure(c.long(2, at.at), c.object(3,
					c.whole(1, physical(f.Kind)), c.wholes(2, encodingPlain, encodingRLE), c.texts(3, f.Name), c.whole(4, 0), c.long(5, rows),
					c.long(6, at.size), c.long(7, at.size), c.long(9, at.at)))
			}),
			c.long(2, size), c.long(3, rows))
	})
}

// footer ends the file.
func (w *writer) footer() {
	var c compact
	c.structure(
		c.whole(1, 1),
		c.structures(2, 1+len(w.fields), func(i int) {
			if i == 0 {
				c.structure(c.text(4, "schema"), c.whole(5, int64(len(w.fields))))
				return
			}
			f := w.fields[i-1]
			parts := []part{c.whole(1, physical(f.Kind)), c.whole(3, optionalField), c.text(4, f.Name)}
			if f.Kind == Text {
				parts = append(parts, c.whole(6, convertedUTF8))
			}
			c.structure(parts...)
		}),
		c.long(3, w.rows),
		c.structures(4, len(w.groups), func(i int) { w.groups[i](&c) }),
		c.text(6, "fulcrum"))
	w.write(c.b)
	w.write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(c.b))), magic...))
}

// compact writes Thrift's compact protocol.
type compact struct{ b []byte }

// part writes the field number id of a struct, after the field number last.
type part func(last int) (id int)

// Types of the compact protocol.
const (
	thriftInt32, thriftInt64, thriftBinary, thriftList, thriftStruct = 5, 6, 8, 9, 12
)

func (c *compact) structure(parts ...part) {
	last := 0
	for _, p := range parts {
		last = p(last)
	}
	c.b = append(c.b, 0)
}

// one is a field of a kind whose value is written by value. Field numbers grow by less than 16 here.
func (c *compact) one(id, kind int, value func()) part {
	return func(last int) int {
		c.b = append(c.b, byte((id-last)<<4|kind))
		value()
		return id
	}
}

func (c *compact) varint(v int64) { c.b = binary.AppendVarint(c.b, v) }

func (c *compact) bytes(s string) {
	c.b = append(binary.AppendUvarint(c.b, uint64(len(s))), s...)
}

func (c *compact) whole(id int, v int64) part {
	return c.one(id, thriftInt32, func() { c.varint(v) })
}

func (c *compact) long(id int, v int64) part {
	return c.one(id, thriftInt64, func() { c.varint(v) })
}

func (c *compact) text(id int, s string) part {
	return c.one(id, thriftBinary, func() { c.bytes(s) })
}

func (c *compact) object(id int, parts ...part) part {
	return c.one(id, thriftStruct, func() { c.structure(parts...) })
}

// list writes the head of a list field, then its n elements.
func (c *compact) list(id, kind, n int, each func(i int)) part {
	return c.one(id, thriftList, func() {
		if n < 15 {
			c.b = append(c.b, byte(n<<4|kind))
		} else {
			c.b = binary.AppendUvarint(append(c.b, byte(0xf0|kind)), uint64(n))
		}
		for i := range n {
			each(i)
		}
	})
}

func (c *compact) structures(id, n int, each func(i int)) part {
	return c.list(id, thriftStruct, n, each)
}

func (c *compact) wholes(id int, values ...int64) part {
	return c.list(id, thriftInt32, len(values), func(i int) { c.varint(values[i]) })
}

func (c *compact) texts(id int, texts ...string) part {
	return c.list(id, thriftBinary, len(texts), func(i int) { c.bytes(texts[i]) })
}
