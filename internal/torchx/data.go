package torchx

// #include <stdlib.h>
// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// element is a Go type with a libtorch scalar type of the same layout.
type element interface {
	~float32 | ~float64 | ~int64 | ~int32 | ~uint8 | ~bool
}

func dtypeOf[E element]() DType {
	var e E
	switch any(e).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int64:
		return Int64
	case int32:
		return Int32
	case bool:
		return Bool
	}
	return Uint8
}

func cshape(shape []int) (*C.int64_t, C.int64_t) {
	if len(shape) == 0 {
		return nil, 0
	}
	s := make([]C.int64_t, len(shape))
	for i, d := range shape {
		s[i] = C.int64_t(d)
	}
	return &s[0], C.int64_t(len(s))
}

func numel(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// From returns a CPU tensor of the given shape with a copy of data (one memcpy).
func From[E element](data []E, shape ...int) Tensor {
	return FromBytes(unsafe.Pointer(unsafe.SliceData(data)), dtypeOf[E](), len(data), shape)
}

// FromBytes copies n elements of dtype from memory p.
func FromBytes(p unsafe.Pointer, dtype DType, n int, shape []int) Tensor {
	if numel(shape) != n {
		panic(&OpError{Op: "from", Msg: fmt.Sprintf("%d elements do not fill shape %v", n, shape)})
	}
	counts.Uploads++
	return fromBytes(p, dtype, shape)
}

func fromBytes(p unsafe.Pointer, dtype DType, shape []int) Tensor {
	s, d := cshape(shape)
	return made("from", func(out *C.Tensor) *C.char { return C.fc_from_data(p, C.int8_t(dtype), s, d, out) })
}

// FromStatic returns a CPU tensor over data without a copy. data must not be Go-heap memory that moves
// or is freed while the tensor lives: use it for memory-mapped files and for slices kept by their owner.
func FromStatic(data []float32, shape ...int) Tensor {
	return FromMapped(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), 4*len(data)), Float32, shape...)
}

// FromMapped returns a CPU tensor over the bytes of a memory-mapped file, row-major and aligned to its
// element, without a copy. The bytes must outlive the tensor, and must not be written through it.
func FromMapped(data []byte, dtype DType, shape ...int) Tensor {
	size := dtype.Size()
	if numel(shape)*size != len(data) {
		panic(&OpError{Op: "from", Msg: fmt.Sprintf("%d bytes do not fill shape %v of %v", len(data), shape, dtype)})
	}
	p := unsafe.Pointer(unsafe.SliceData(data))
	if uintptr(p)%uintptr(size) != 0 {
		panic(&OpError{Op: "from", Msg: fmt.Sprintf("the data of %v is not aligned to its %d bytes", dtype, size)})
	}
	s, d := cshape(shape)
	return made("from", func(out *C.Tensor) *C.char { return C.fc_from_static(p, C.int8_t(dtype), s, d, out) })
}

// Data copies t to the host as a flat slice in row-major order. The element type must match. sync
func Data[E element](t Tensor) []E {
	i := t.info()
	if want := dtypeOf[E](); i.dtype != want {
		panic(&OpError{Op: "data", Msg: fmt.Sprintf("tensor is %v, want %v", i.dtype, want)})
	}
	out := make([]E, numel(i.shape))
	if len(out) == 0 {
		return out
	}
	t.copyOut("data", unsafe.Pointer(&out[0]), len(out)*i.dtype.Size())
	return out
}

// Bytes copies t's raw bytes to the host, row-major. sync
func (t Tensor) Bytes() []byte {
	i := t.info()
	out := make([]byte, numel(i.shape)*i.dtype.Size())
	if len(out) > 0 {
		t.copyOut("bytes", unsafe.Pointer(&out[0]), len(out))
	}
	return out
}

func (t Tensor) copyOut(op string, to unsafe.Pointer, bytes int) {
	counts.ReadBacks++
	check(op, C.fc_copy_out(t.c(), to, C.int64_t(bytes)), t)
}

// Read copies several tensors of float32, float64 or int64 to the host with one wait for the device, each flat. A tensor that is
// none gives nil. sync
func Read(ts ...Tensor) [][]float64 {
	defer Scope()()
	packed, layout := Pack(ts...)
	return layout.Read(packed)
}

// Packed is the layout of several tensors' bytes one after another.
type Packed []packedPart

type packedPart struct {
	dtype DType
	n     int // elements; -1: there is no tensor
}

// Pack joins the bytes of tensors of float32, float64 or int64 [bytes] where they lie, for a later Read.
func Pack(ts ...Tensor) (Tensor, Packed) {
	there := slices.DeleteFunc(slices.Clone(ts), Tensor.Nil)
	h, n := handles("read", there)
	packed := made("read", func(out *C.Tensor) *C.char { return C.fc_pack(h, n, out) }, there...)
	layout := make(Packed, len(ts))
	for i, t := range ts {
		if layout[i].n = -1; !t.Nil() {
			in := t.info()
			layout[i] = packedPart{dtype: in.dtype, n: numel(in.shape)}
		}
	}
	return packed, layout
}

// Bytes returns the length of what Pack has joined.
func (l Packed) Bytes() int {
	n := 0
	for _, p := range l {
		n += max(p.n, 0) * p.dtype.Size()
	}
	return n
}

// Read copies what Pack has joined to the host. sync
func (l Packed) Read(packed Tensor) [][]float64 {
	bytes := Data[uint8](packed)
	out := make([][]float64, len(l))
	for i, p := range l {
		if p.n < 0 {
			continue
		}
		values := make([]float64, p.n)
		for j := range values {
			switch p.dtype {
			case Float64:
				values[j] = math.Float64frombits(binary.NativeEndian.Uint64(bytes[8*j:]))
			case Int64:
				values[j] = float64(int64(binary.NativeEndian.Uint64(bytes[8*j:])))
			default:
				values[j] = float64(math.Float32frombits(binary.NativeEndian.Uint32(bytes[4*j:])))
			}
		}
		out[i], bytes = values, bytes[p.n*p.dtype.Size():]
	}
	return out
}

// Floats copies t to the host as float64, whatever its float type. sync
func (t Tensor) Floats() []float64 {
	defer Scope()()
	if t.DType() != Float64 {
		t = t.To(Float64)
	}
	return Data[float64](t)
}

// Item returns the only element of t as float64. sync
func (t Tensor) Item() float64 {
	v := t.Floats()
	if len(v) != 1 {
		panic(opError("item", fmt.Sprintf("want one element, got %d", len(v)), []Tensor{t}))
	}
	return v[0]
}

// Full returns a float32 CPU tensor filled with v.
func Full(v float64, shape ...int) Tensor { return FullLike(Tensor{}, v, Float32, shape...) }

// Zeros returns a float32 CPU tensor of zeros.
func Zeros(shape ...int) Tensor { return Full(0, shape...) }

// FullLike returns a tensor filled with v on the device of like (the CPU when like is no tensor).
func FullLike(like Tensor, v float64, dtype DType, shape ...int) Tensor {
	s, d := cshape(shape)
	return made("full", func(out *C.Tensor) *C.char { return C.fc_full(s, d, C.double(v), C.int8_t(dtype), like.c(), out) })
}

// Copy writes src into dst in place, casting and moving between devices; autograd does not see it.
func Copy(dst, src Tensor) {
	must("copy", dst, src)
	check("copy", C.fc_copy_(dst.c(), src.c()), dst, src)
}

// AddTo adds x to dst in place; autograd does not see it.
func AddTo(dst, x Tensor) {
	must("add", dst, x)
	check("add", C.fc_add_(dst.c(), x.c()), dst, x)
}

// To casts to dtype (no copy when it is that already).
func (t Tensor) To(dtype DType) Tensor {
	return made("to", func(out *C.Tensor) *C.char { return C.fc_cast(t.c(), C.int8_t(dtype), out) }, t)
}

// ToLike moves t to the device of like; no copy when it is there already. The host does not wait for a copy to a device.
func ToLike(t, like Tensor) Tensor {
	return made("to", func(out *C.Tensor) *C.char { return C.fc_to_like(t.c(), like.c(), out) }, t, like)
}

// ToDevice moves to "cpu", "cuda" or "cuda:N".
func (t Tensor) ToDevice(device string) Tensor {
	d := C.CString(device)
	defer C.free(unsafe.Pointer(d))
	return made("to("+device+")", func(out *C.Tensor) *C.char { return C.fc_to_device(t.c(), d, out) }, t)
}
