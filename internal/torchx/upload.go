package torchx

// #include "csrc/upload.h"
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Upload collects host data for a device and brings it there in one copy, which the host does not wait for:
//
//	var up torchx.Upload
//	torchx.Put(&up, &actions, values, b, g, t) // actions is undefined until …
//	up.Send(params.Flat())                     // … it lies on the device of that tensor
//
// A copy costs the device as much as a matrix product, however small it is.
type Upload struct {
	parts []uploadPart
	bytes int // of all parts, each aligned to uploadAlign
}

type uploadPart struct {
	to     *Tensor
	from   unsafe.Pointer
	dtype  DType
	shape  []int
	offset int
}

const uploadAlign = 64

// Put adds data of the given shape. The slice must stay as it is until Send, which writes *to.
func Put[E element](u *Upload, to *Tensor, data []E, shape ...int) {
	if numel(shape) != len(data) {
		panic(&OpError{Op: "upload", Msg: fmt.Sprintf("%d elements do not fill shape %v", len(data), shape)})
	}
	p := uploadPart{to: to, from: unsafe.Pointer(unsafe.SliceData(data)), dtype: dtypeOf[E](), shape: shape, offset: u.bytes}
	u.parts = append(u.parts, p)
	u.bytes += (p.size() + uploadAlign - 1) / uploadAlign * uploadAlign
}

func (p uploadPart) size() int { return numel(p.shape) * p.dtype.Size() }

// Send brings all parts to the device of like. They live in the scope of the call.
func (u *Upload) Send(like Tensor) {
	counts.Uploads++
	if !like.OnCUDA() {
		for _, p := range u.parts {
			*p.to = fromBytes(p.from, p.dtype, p.shape)
		}
		return
	}
	u.spread(ToLike(u.staged(), like))
}

// Room returns a buffer on the device of like that SendTo fills for every Upload of the same Layout.
func (u *Upload) Room(like Tensor) Tensor { return FullLike(like, 0, Uint8, u.bytes) }

// SendTo is Send into a buffer (of Room), for a recorded computation that reads it.
func (u *Upload) SendTo(room Tensor) {
	defer Scope()()
	counts.Uploads++
	Copy(room, u.staged())
}

// Open sets all parts to what lies in room.
func (u *Upload) Open(room Tensor) { u.spread(room) }

// Layout names types and shapes of all parts in their order.
func (u *Upload) Layout() string {
	var s strings.Builder
	for _, p := range u.parts {
		fmt.Fprintf(&s, "%d%v", p.dtype, p.shape)
	}
	return s.String()
}

// staged copies all parts to memory that the device reads by itself.
func (u *Upload) staged() Tensor {
	var out C.Tensor
	var data unsafe.Pointer
	check("upload", C.fc_staging(C.int64_t(u.bytes), &out, &data))
	for _, p := range u.parts {
		copy(unsafe.Slice((*byte)(unsafe.Add(data, p.offset)), p.size()), unsafe.Slice((*byte)(p.from), p.size()))
	}
	return adopt(out)
}

func (u *Upload) spread(buffer Tensor) {
	for _, p := range u.parts {
		s, d := cshape(p.shape)
		*p.to = made("upload", func(out *C.Tensor) *C.char {
			return C.fc_view(buffer.c(), C.int64_t(p.offset), C.int8_t(p.dtype), s, d, out)
		}, buffer)
	}
}

// Factor is a number that a computation multiplies by. On CUDA it comes with an Upload, so that a recorded computation
// takes another one each time.
type Factor struct {
	value float64
	on    Tensor // [1] float32, or none
}

// Factor returns the factor v for a computation on the device of like.
func (u *Upload) Factor(v float64, like Tensor) *Factor {
	f := &Factor{value: v}
	if like.OnCUDA() {
		Put(u, &f.on, []float32{float32(v)}, 1)
	}
	return f
}

// Times returns f·x.
func (f *Factor) Times(x Tensor) Tensor {
	if f.on.Nil() {
		return Scale(x, f.value)
	}
	return Reshape(Mul(x, f.on), x.Shape()...)
}
