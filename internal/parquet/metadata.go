package parquet

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// The metadata of a file that are read or written here, by their numbers in parquet.thrift. Other fields are passed over.

type footer struct {
	Version int32      `thrift:"1"`
	Schema  []*element `thrift:"2"`
	Rows    int64      `thrift:"3,writezero"`
	Groups  []*group   `thrift:"4,writezero"`
	By      string     `thrift:"6"`
}

// element is a node of the tree of columns, which is written depth first.
type element struct {
	Kind       *format.Type               `thrift:"1"`
	Repetition format.FieldRepetitionType `thrift:"3"`
	Name       string                     `thrift:"4"`
	Children   *int32                     `thrift:"5"` // nil: a column
	Converted  *deprecated.ConvertedType  `thrift:"6"`
	Logical    *logical                   `thrift:"10"`
}

// logical has what a file may say here alone, times in nanoseconds above all.
type logical struct {
	Decimal *struct{} `thrift:"5"`
	Date    *struct{} `thrift:"6"`
	Time    *struct{} `thrift:"7"`
	Stamp   *struct{} `thrift:"8"`
	Integer *struct {
		Signed bool `thrift:"2,writezero"`
	} `thrift:"10"`
}

type group struct {
	Chunks []*chunk `thrift:"1,writezero"`
	Size   int64    `thrift:"2"`
	Rows   int64    `thrift:"3"`
}

type chunk struct {
	File string     `thrift:"1"` // another one
	At   int64      `thrift:"2"`
	Meta *chunkMeta `thrift:"3"`
}

type chunkMeta struct {
	Kind      format.Type             `thrift:"1,writezero"`
	Encodings []format.Encoding       `thrift:"2"`
	Names     []string                `thrift:"3"`
	Codec     format.CompressionCodec `thrift:"4,writezero"`
	Values    int64                   `thrift:"5"`
	Unpacked  int64                   `thrift:"6"`
	Packed    int64                   `thrift:"7"`
	At        int64                   `thrift:"9"`
	Dict      int64                   `thrift:"11"`
}

type pageHeader struct {
	Kind   format.PageType `thrift:"1,writezero"`
	Size   int32           `thrift:"2,writezero"` // when decompressed
	Packed int32           `thrift:"3,writezero"`
	Data   *dataHeader     `thrift:"5"`
	Dict   *dataHeader     `thrift:"7"` // which has the first two fields
	Data2  *dataHeader2    `thrift:"8"`
}

type dataHeader struct {
	Values   int32           `thrift:"1"`
	Encoding format.Encoding `thrift:"2,writezero"`
	Levels   format.Encoding `thrift:"3"` // the encodings of definition and of repetition levels
	Repeats  format.Encoding `thrift:"4"`
}

type dataHeader2 struct {
	Values   int32           `thrift:"1"`
	Encoding format.Encoding `thrift:"4"`
	Levels   int32           `thrift:"5"` // bytes of definition and of repetition levels
	Repeats  int32           `thrift:"6"`
	Packed   *bool           `thrift:"7"` // nil: as the file
}

// errShort says that the bytes end within a value: more may follow in the file.
var errShort = errors.New("the metadata ends early")

// decode reads a struct from the beginning of b and returns its length.
func decode(b []byte, into any) (n int, err error) {
	r := &bounded{BytesReader: new(thrift.CompactProtocol).NewReaderFromBytes(b), size: len(b), open: []int32{1}}
	err = thrift.NewDecoder(r).Decode(into)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errShort
	}
	return r.BytesRead(), err
}

// maxDepth bounds nesting: Parquet's own needs six.
const maxDepth = 32

// bounded is a reader that damage cannot make ask for more memory than its bytes account for, nor nest without end.
type bounded struct {
	thrift.BytesReader
	size int
	open []int32 // the structs that are still to end, on each level of nesting
}

// Discard passes over n bytes.
func (r *bounded) Discard(n int) (int, error) {
	return r.BytesReader.(interface{ Discard(n int) (int, error) }).Discard(n)
}

// enter begins n structs within the one that is read.
func (r *bounded) enter(n int32) error {
	if n > 0 {
		r.open = append(r.open, n)
	}
	if len(r.open) > maxDepth {
		return errors.New("metadata nested too deeply")
	}
	return nil
}

// ReadField counts the structs that begin and end.
func (r *bounded) ReadField() (thrift.Field, error) {
	f, err := r.BytesReader.ReadField()
	switch last := len(r.open) - 1; {
	case err != nil:
	case f.Type == thrift.STRUCT:
		err = r.enter(1)
	case f.Type == thrift.STOP && last >= 0:
		if r.open[last]--; r.open[last] == 0 {
			r.open = r.open[:last]
		}
	}
	return f, err
}

// ReadList refuses more elements than there are bytes, and what Parquet has no lists of.
func (r *bounded) ReadList() (thrift.List, error) {
	l, err := r.BytesReader.ReadList()
	switch {
	case err != nil:
	case int(l.Size) > r.size-r.BytesRead():
		err = errShort
	case l.Type == thrift.LIST || l.Type == thrift.SET || l.Type == thrift.MAP:
		err = fmt.Errorf("metadata with a list of %s", l.Type)
	case l.Type == thrift.STRUCT:
		err = r.enter(l.Size)
	}
	return l, err
}

// ReadSet reads what is written as a list.
func (r *bounded) ReadSet() (thrift.Set, error) {
	l, err := r.ReadList()
	return thrift.Set(l), err
}

// ReadMap refuses a map: Parquet has none.
func (r *bounded) ReadMap() (thrift.Map, error) {
	return thrift.Map{}, errors.New("metadata with a map")
}
