// Package tensorfile reads and writes the files tensors live in: safetensors, PyTorch's .pt, .pth and
// .ckpt (zip and legacy), NumPy's .npy and .npz. It is pure Go and executes nothing: pickles are
// decoded by an interpreter that knows a short list of globals and refuses every other one by name.
//
//	f, err := tensorfile.ReadSafetensors("model.safetensors") // mapped, not copied
//	defer f.Close()
//	w, ok := f.Get("input_proj.weight")
//	values, err := w.Float32s()
//
// Foreign bytes are never trusted: a damaged or malicious file gives one line naming it.
package tensorfile

import (
	"fmt"
	"math"
	"unsafe"

	"fulcrum/internal/list"
)

// DType names an element type, in safetensors' spelling.
type DType string

// The element types that files may hold.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	I64  DType = "I64"
	I32  DType = "I32"
	I16  DType = "I16"
	I8   DType = "I8"
	U64  DType = "U64"
	U32  DType = "U32"
	U16  DType = "U16"
	U8   DType = "U8"
	BOOL DType = "BOOL"
	C64  DType = "C64"     // complex of two F32: listed, never cast
	F8E4 DType = "F8_E4M3" // 8-bit floats: listed, never cast
	F8E5 DType = "F8_E5M2"
)

// Size returns the bytes of one element, 0 for an unknown type.
func (d DType) Size() int {
	switch d {
	case F64, I64, U64, C64:
		return 8
	case F32, I32, U32:
		return 4
	case F16, BF16, I16, U16:
		return 2
	case I8, U8, BOOL, F8E4, F8E5:
		return 1
	}
	return 0
}

// IsFloat says whether Float32s can cast the type without loss of kind.
func (d DType) IsFloat() bool { return d == F64 || d == F32 || d == F16 || d == BF16 }

// Tensor is a dense array: little endian, row-major, contiguous. Data may be mapped from a file: it
// is read-only and valid until the file is closed.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
}

func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Float32s returns the elements of a float tensor as float32. F32 data is shared, not copied, when
// it is aligned: do not write to it.
func (t Tensor) Float32s() ([]float32, error) {
	n := t.Len()
	if len(t.Data) != n*t.DType.Size() {
		return nil, t.errorf("%d bytes of data for shape %v", len(t.Data), t.Shape)
	}
	switch t.DType {
	case F32:
		return shared[float32](t.Data, n), nil
	case F64:
		return convert[float32](shared[float64](t.Data, n)), nil
	case F16:
		return list.Map(shared[uint16](t.Data, n), HalfToFloat32), nil
	case BF16:
		out := make([]float32, n) // a loop: a model has billions
		for i, v := range shared[uint16](t.Data, n) {
			out[i] = math.Float32frombits(uint32(v) << 16)
		}
		return out, nil
	}
	return nil, t.errorf("want a float type")
}

// Float64s returns the elements of any real tensor (float, integer or bool) as float64.
func (t Tensor) Float64s() ([]float64, error) {
	switch {
	case t.DType == F64:
		if len(t.Data) != 8*t.Len() {
			return nil, t.errorf("%d bytes of data for shape %v", len(t.Data), t.Shape)
		}
		return shared[float64](t.Data, t.Len()), nil
	case t.DType.IsFloat():
		v, err := t.Float32s()
		return convert[float64](v), err
	}
	v, err := t.Int64s()
	return convert[float64](v), err
}

// Int64s returns the elements of an integer or bool tensor as int64.
func (t Tensor) Int64s() ([]int64, error) {
	n := t.Len()
	if len(t.Data) != n*t.DType.Size() {
		return nil, t.errorf("%d bytes of data for shape %v", len(t.Data), t.Shape)
	}
	switch t.DType {
	case I64:
		return shared[int64](t.Data, n), nil
	case I32:
		return convert[int64](shared[int32](t.Data, n)), nil
	case I16:
		return convert[int64](shared[int16](t.Data, n)), nil
	case I8:
		return convert[int64](shared[int8](t.Data, n)), nil
	case U32:
		return convert[int64](shared[uint32](t.Data, n)), nil
	case U16:
		return convert[int64](shared[uint16](t.Data, n)), nil
	case U8, BOOL:
		return convert[int64](t.Data), nil
	case U64:
		out := make([]int64, n)
		for i, v := range shared[uint64](t.Data, n) {
			if v > math.MaxInt64 {
				return nil, t.errorf("element %d = %d does not fit int64", i, v)
			}
			out[i] = int64(v)
		}
		return out, nil
	}
	return nil, t.errorf("want an integer type")
}

func (t Tensor) errorf(format string, args ...any) error {
	return fmt.Errorf("tensor %q (%s %v): %s", t.Name, t.DType, t.Shape, fmt.Sprintf(format, args...))
}

// FromFloat32s returns an F32 tensor over v's memory.
func FromFloat32s(name string, shape []int, v []float32) Tensor {
	return Tensor{Name: name, DType: F32, Shape: shape, Data: bytesOf(v)}
}

// Scalar returns a 0-dim F64 tensor: a number that PyTorch 1.13 reads with weights_only=True, which
// refuses plain floats.
func Scalar(v float64) Tensor { return Tensor{DType: F64, Shape: []int{}, Data: bytesOf([]float64{v})} }

type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// shared views little-endian bytes as n numbers, copying only where the memory is not aligned. The
// supported platforms (amd64, arm64) are little endian.
func shared[T number](data []byte, n int) []T {
	if n == 0 {
		return []T{}
	}
	p := unsafe.Pointer(unsafe.SliceData(data))
	if uintptr(p)%unsafe.Alignof(*new(T)) == 0 {
		return unsafe.Slice((*T)(p), n)
	}
	out := make([]T, n)
	copy(bytesOf(out), data)
	return out
}

func bytesOf[T number](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}

func convert[To, From number](v []From) []To {
	out := make([]To, len(v))
	for i, x := range v {
		out[i] = To(x)
	}
	return out
}

// elements returns the product of shape, or an error where it overflows or a dimension is negative.
func elements(shape []int) (int, error) {
	n := 1
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative size", shape)
		}
		if d != 0 && n > math.MaxInt/16/d { // 16: room for the element size
			return 0, fmt.Errorf("shape %v overflows", shape)
		}
		n *= d
	}
	return n, nil
}

// HalfToFloat32 converts one IEEE 754 binary16 number, exactly.
func HalfToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	v := float32(frac) / (1 << 24) // zero and subnormals: exact
	if sign != 0 {
		v = -v
	}
	return v
}
