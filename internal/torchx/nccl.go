package torchx

// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// NCCL joins the GPUs of processes. Its operations wait on the GPU, in the stream of their tensors, for another process to make theirs.
type NCCL struct {
	comm  unsafe.Pointer
	ended atomic.Bool
}

// NCCLVersion returns the version of the NCCL that the program finds, such as 2.21.5.
func NCCLVersion() (string, error) {
	var v C.int
	if err := ofNCCL(C.fc_nccl_version(&v)); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100), nil
}

// NewNCCLID returns what one process makes and all give to JoinNCCL.
func NewNCCLID() ([]byte, error) {
	id := make([]byte, 128)
	return id, ofNCCL(C.fc_nccl_id((*C.char)(unsafe.Pointer(&id[0]))))
}

// JoinNCCL waits until all size processes have come, each with its device.
func JoinNCCL(id []byte, rank, size int, device string) (*NCCL, error) {
	n := &NCCL{}
	gpu, cuda := CUDAIndex(device)
	return n, ofNCCL(C.fc_nccl_join((*C.char)(unsafe.Pointer(&id[0])), C.int(rank), C.int(size), C.bool(cuda), C.int(gpu), &n.comm))
}

// Send gives x (contiguous) to a process that receives a tensor of its size.
func (n *NCCL) Send(x Tensor, to int) error {
	return n.unlessEnded(func() *C.char { return C.fc_nccl_send(n.comm, x.c(), C.int(to)) })
}

// Receive fills x (contiguous) with what a process sends.
func (n *NCCL) Receive(x Tensor, from int) error {
	return n.unlessEnded(func() *C.char { return C.fc_nccl_receive(n.comm, x.c(), C.int(from)) })
}

// Broadcast fills x (contiguous) of every process with that of one.
func (n *NCCL) Broadcast(x Tensor, from int) error {
	return n.unlessEnded(func() *C.char { return C.fc_nccl_broadcast(n.comm, x.c(), C.int(from)) })
}

// Err returns what NCCL has noticed by itself. Of a process that has died it may notice nothing.
func (n *NCCL) Err() error { return n.unlessEnded(func() *C.char { return C.fc_nccl_state(n.comm) }) }

// Abort ends the communicator, and what this process waits for.
func (n *NCCL) Abort() error {
	if n.ended.Swap(true) {
		return nil
	}
	return ofNCCL(C.fc_nccl_abort(n.comm))
}

func (n *NCCL) unlessEnded(call func() *C.char) error {
	if n.ended.Load() {
		return errors.New("NCCL: the communicator has ended")
	}
	return ofNCCL(call())
}

func ofNCCL(msg *C.char) error {
	if msg == nil {
		return nil
	}
	defer C.fc_free_string(msg)
	return errors.New("NCCL: " + C.GoString(msg))
}
