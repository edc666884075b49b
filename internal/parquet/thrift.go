package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// fields is a Thrift struct by field number: int64, float64, bool, []byte, []any or fields.
type fields map[int]any

// thrift reads Thrift's compact protocol, in which Parquet writes its metadata.
type thrift struct {
	b  []byte
	at int
}

// errShort says that the bytes end within a value: more may follow in the file.
var errShort = errors.New("the metadata ends early")

// maxDepth bounds nesting: Parquet's own needs six.
const maxDepth = 32

func (t *thrift) byte() (byte, error) {
	if t.at >= len(t.b) {
		return 0, errShort
	}
	t.at++
	return t.b[t.at-1], nil
}

func (t *thrift) uvarint() (uint64, error) {
	v, n := binary.Uvarint(t.b[t.at:])
	switch {
	case n == 0:
		return 0, errShort
	case n < 0:
		return 0, errors.New("a number of more than 64 bits")
	}
	t.at += n
	return v, nil
}

func (t *thrift) varint() (int64, error) {
	v, err := t.uvarint()
	return int64(v>>1) ^ -int64(v&1), err
}

func (t *thrift) bytes() ([]byte, error) {
	n, err := t.uvarint()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(t.b)-t.at) {
		return nil, errShort
	}
	t.at += int(n)
	return t.b[t.at-int(n) : t.at], nil
}

// object reads a struct up to its end.
func (t *thrift) object(depth int) (fields, error) {
	if depth > maxDepth {
		return nil, errors.New("metadata nested too deeply")
	}
	out, id := fields{}, 0
	for {
		head, err := t.byte()
		if err != nil || head == 0 {
			return out, err
		}
		if delta := int(head >> 4); delta > 0 {
			id += delta
		} else {
			n, err := t.varint()
			if err != nil {
				return nil, err
			}
			id = int(n)
		}
		if out[id], err = t.value(head&15, depth, false); err != nil {
			return nil, err
		}
	}
}

// value reads a value of a type; in a list a bool takes a byte of its own.
func (t *thrift) value(kind byte, depth int, inList bool) (any, error) {
	switch kind {
	case 1, 2:
		if !inList {
			return kind == 1, nil
		}
		b, err := t.byte()
		return b == 1, err
	case 3:
		b, err := t.byte()
		return int64(int8(b)), err
	case 4, 5, 6:
		return t.varint()
	case 7:
		if len(t.b)-t.at < 8 {
			return nil, errShort
		}
		t.at += 8
		return math.Float64frombits(binary.LittleEndian.Uint64(t.b[t.at-8:])), nil
	case 8:
		return t.bytes()
	case 9, 10:
		return t.list(depth)
	case 11:
		return t.mapping(depth)
	case 12:
		return t.object(depth + 1)
	}
	return nil, fmt.Errorf("metadata of an unknown type %d", kind)
}

func (t *thrift) list(depth int) ([]any, error) {
	head, err := t.byte()
	if err != nil {
		return nil, err
	}
	n := uint64(head >> 4)
	if n == 15 {
		if n, err = t.uvarint(); err != nil {
			return nil, err
		}
	}
	if n > uint64(len(t.b)-t.at) { // every element takes a byte at least
		return nil, errShort
	}
	if depth > maxDepth {
		return nil, errors.New("metadata nested too deeply")
	}
	out := make([]any, n)
	for i := range out {
		if out[i], err = t.value(head&15, depth+1, true); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// mapping passes over a map: nothing that is read here is one.
func (t *thrift) mapping(depth int) (any, error) {
	n, err := t.uvarint()
	if err != nil || n == 0 {
		return nil, err
	}
	kinds, err := t.byte()
	if err != nil {
		return nil, err
	}
	for range n {
		for _, kind := range []byte{kinds >> 4, kinds & 15} {
			if _, err := t.value(kind, depth+1, true); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// The getters return the zero value for a field that is absent or of another type.

func (f fields) int(id int) int64     { v, _ := f[id].(int64); return v }
func (f fields) text(id int) string   { v, _ := f[id].([]byte); return string(v) }
func (f fields) object(id int) fields { v, _ := f[id].(fields); return v }
func (f fields) list(id int) []any    { v, _ := f[id].([]any); return v }
func (f fields) has(id int) bool      { _, ok := f[id]; return ok }
