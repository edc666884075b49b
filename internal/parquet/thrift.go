package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// fields is a Thrift struct by field number: int64, float64, bool, []byte, []any or fields.
type fields map[int]any

// thrift reads Thrift's compact protocol, in which Parquet writes its metadata. The first error stays, and what is read behind it
// is empty.
type thrift struct {
	b   []byte
	at  int
	err error
}

// errShort says that the bytes end within a value: more may follow in the file.
var errShort = errors.New("the metadata ends early")

// maxDepth bounds nesting: Parquet's own needs six.
const maxDepth = 32

func (t *thrift) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *thrift) take(n uint64) []byte {
	if t.err != nil || n > uint64(len(t.b)-t.at) {
		t.fail(errShort)
		return nil
	}
	t.at += int(n)
	return t.b[t.at-int(n) : t.at]
}

func (t *thrift) byte() byte {
	for _, b := range t.take(1) {
		return b
	}
	return 0
}

func (t *thrift) uvarint() uint64 {
	v, n := binary.Uvarint(t.b[t.at:])
	switch {
	case n == 0:
		t.fail(errShort)
	case n < 0:
		t.fail(errors.New("a number of more than 64 bits"))
	default:
		t.at += n
	}
	return v
}

func (t *thrift) varint() int64 {
	v := t.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// object reads a struct up to its end.
func (t *thrift) object(depth int) fields {
	if depth > maxDepth {
		t.fail(errors.New("metadata nested too deeply"))
	}
	out, id := fields{}, 0
	for {
		head := t.byte()
		if head == 0 {
			return out
		}
		if delta := int(head >> 4); delta > 0 {
			id += delta
		} else {
			id = int(t.varint())
		}
		out[id] = t.value(head&15, depth, false)
	}
}

// value reads a value of a type; in a list a bool takes a byte of its own.
func (t *thrift) value(kind byte, depth int, inList bool) any {
	switch kind {
	case 1, 2:
		if inList {
			return t.byte() == 1
		}
		return kind == 1
	case 3:
		return int64(int8(t.byte()))
	case 4, 5, 6:
		return t.varint()
	case 7:
		var b [8]byte
		copy(b[:], t.take(8))
		return math.Float64frombits(binary.LittleEndian.Uint64(b[:]))
	case 8:
		return t.take(t.uvarint())
	case 9, 10:
		return t.list(depth)
	case 11:
		t.skipMap(depth)
		return nil
	case 12:
		return t.object(depth + 1)
	}
	t.fail(fmt.Errorf("metadata of an unknown type %d", kind))
	return nil
}

func (t *thrift) list(depth int) []any {
	head := t.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = t.uvarint()
	}
	if n > uint64(len(t.b)-t.at) { // every element takes a byte at least
		t.fail(errShort)
	}
	if depth > maxDepth {
		t.fail(errors.New("metadata nested too deeply"))
	}
	var out []any
	for t.err == nil && uint64(len(out)) < n {
		out = append(out, t.value(head&15, depth+1, true))
	}
	return out
}

// skipMap passes over a map: nothing that is read here is one.
func (t *thrift) skipMap(depth int) {
	n := t.uvarint()
	if n == 0 {
		return
	}
	kinds := t.byte()
	for ; t.err == nil && n > 0; n-- {
		t.value(kinds>>4, depth+1, true)
		t.value(kinds&15, depth+1, true)
	}
}

// The getters return the zero value for a field that is absent or of another type.

func (f fields) int(id int) int64     { v, _ := f[id].(int64); return v }
func (f fields) text(id int) string   { v, _ := f[id].([]byte); return string(v) }
func (f fields) object(id int) fields { v, _ := f[id].(fields); return v }
func (f fields) list(id int) []any    { v, _ := f[id].([]any); return v }
func (f fields) has(id int) bool      { _, ok := f[id]; return ok }
