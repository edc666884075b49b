package torchx

// #include <stdlib.h>
// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Peers are the processes of a run, which exchange tensors.
type Peers interface {
	// Exchange begins to send tensors and to fill others with what is sent, all at once; wait ends it. Until then what is sent stays as it
	// is. Every process calls both in the same order as the others. Tensors are contiguous.
	Exchange(send, receive []Addressed) (wait func() error, err error)
	// Err returns what was noticed while nobody waits. Of a process that has died it may be nothing.
	Err() error
	// Abort ends what this process waits for, and all later exchanges; other goroutines may call it.
	Abort() error
}

// Addressed is a tensor and the process to which it goes, or from which it comes. By gloo, tensors of one tag arrive in the order in which
// they are sent; by NCCL, those of all tags.
type Addressed struct {
	Tensor
	Rank, Tag int
}

// Gloo exchanges tensors by TCP, through libtorch's c10d. Those on a GPU go through the host's memory.
type Gloo struct{ group unsafe.Pointer }

// GlooBuilt reports whether libtorch has gloo.
func GlooBuilt() bool { return errorOf("gloo", C.fc_gloo_wait(nil, 0)) == nil }

// GlooStore opens the store in which processes find each other: the one that keeps it chooses a port, which the others give.
func GlooStore(host string, port int, keeps bool) (g *Gloo, at int, err error) {
	name, p := C.CString(host), C.int(port)
	defer C.free(unsafe.Pointer(name))
	g = &Gloo{}
	err = errorOf("gloo", C.fc_gloo_store(name, &p, C.bool(keeps), &g.group))
	return g, int(p), err
}

// Join waits until all size processes have come; the others reach this one at address.
func (g *Gloo) Join(address string, rank, size int) error {
	at := C.CString(address)
	defer C.free(unsafe.Pointer(at))
	return errorOf("gloo", C.fc_gloo_join(g.group, at, C.int(rank), C.int(size)))
}

func (g *Gloo) Exchange(send, receive []Addressed) (wait func() error, err error) {
	for i := 0; i < len(send) && err == nil; i++ {
		err = errorOf("gloo", C.fc_gloo_send(g.group, send[i].c(), C.int(send[i].Rank), C.int(send[i].Tag)))
	}
	for i := 0; i < len(receive) && err == nil; i++ {
		err = errorOf("gloo", C.fc_gloo_receive(g.group, receive[i].c(), C.int(receive[i].Rank), C.int(receive[i].Tag)))
	}
	return func() error { return g.wait(len(send) + len(receive)) }, err
}

// wait ends the n oldest operations.
func (g *Gloo) wait(n int) error { return errorOf("gloo", C.fc_gloo_wait(g.group, C.int(n))) }

func (g *Gloo) Err() error   { return nil }
func (g *Gloo) Abort() error { return errorOf("gloo", C.fc_gloo_abort(g.group)) }

// Sender sends parts of the gradient of a backward pass on the host while that is under way.
type Sender struct {
	Early   int // parts that were sent during passes
	by      *Gloo
	params  *Params
	sender  unsafe.Pointer
	watched int // of the parameters' leaves
}

// SentPart is a part [From, To) of the flat gradient for a process.
type SentPart struct{ From, To, Rank, Tag int }

// Sender returns what sends the gradients of p.
func (g *Gloo) Sender(p *Params) *Sender {
	a := &Sender{by: g, params: p}
	check("gloo", C.fc_sender(g.group, p.grad.c(), &a.sender))
	return a
}

// Start is called before a backward pass. As soon as a part is finished it is sent, with sums added in this order.
func (a *Sender) Start(parts []SentPart, sums []Tensor) {
	for _, l := range a.params.leaves[a.watched:] {
		from, to := a.params.Range(l.name)
		check("gloo", C.fc_sender_watch(a.sender, l.of.c(), C.int64_t(from), C.int64_t(to)))
	}
	a.watched = len(a.params.leaves)
	for _, p := range parts {
		check("gloo", C.fc_sender_part(a.sender, C.int64_t(p.From), C.int64_t(p.To), C.int(p.Rank), C.int(p.Tag)))
	}
	for _, sum := range sums {
		check("gloo", C.fc_sender_later(a.sender, sum.c()))
	}
	check("gloo", C.fc_sender_start(a.sender))
}

// End is called behind the pass and sends the rest, which wait waits for. late says that some of what was sent before was not finished: the
// pass came to a parameter more often than any before.
func (a *Sender) End() (wait func() error, late bool, err error) {
	var early, sent C.int
	var unfinished C.bool
	err = errorOf("gloo", C.fc_sender_end(a.sender, &early, &sent, &unfinished))
	a.Early += int(early)
	return func() error { return a.by.wait(int(sent)) }, bool(unfinished) || a.watched < len(a.params.leaves), err
}

// Free ends the watch over the parameters.
func (a *Sender) Free() { check("gloo", C.fc_sender_free(a.sender)) }

// NCCL joins the GPUs of processes. Its operations wait on the GPU, in the stream of their tensors, for another process to make theirs.
type NCCL struct {
	comm  unsafe.Pointer
	ended atomic.Bool
}

// NCCLVersion returns the version of the NCCL that the program finds, such as 2.21.5.
func NCCLVersion() (string, error) {
	var v C.int
	if err := errorOf("NCCL", C.fc_nccl_version(&v)); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100), nil
}

// NewNCCLID returns what one process makes and all give to JoinNCCL.
func NewNCCLID() ([]byte, error) {
	id := make([]byte, 128)
	return id, errorOf("NCCL", C.fc_nccl_id((*C.char)(unsafe.Pointer(&id[0]))))
}

// JoinNCCL waits until all size processes have come, each with its device.
func JoinNCCL(id []byte, rank, size int, device string) (*NCCL, error) {
	n := &NCCL{}
	gpu, cuda := CUDAIndex(device)
	return n, errorOf("NCCL", C.fc_nccl_join((*C.char)(unsafe.Pointer(&id[0])), C.int(rank), C.int(size), C.bool(cuda), C.int(gpu), &n.comm))
}

// Exchange needs no wait: later operations on the tensors stand behind it in their stream.
func (n *NCCL) Exchange(send, receive []Addressed) (wait func() error, err error) {
	calls := []func() *C.char{func() *C.char { return C.fc_nccl_group(true) }}
	for _, of := range send {
		calls = append(calls, func() *C.char { return C.fc_nccl_send(n.comm, of.c(), C.int(of.Rank)) })
	}
	for _, of := range receive {
		calls = append(calls, func() *C.char { return C.fc_nccl_receive(n.comm, of.c(), C.int(of.Rank)) })
	}
	for _, call := range append(calls, func() *C.char { return C.fc_nccl_group(false) }) {
		if err = n.unlessEnded(call); err != nil {
			return nil, err
		}
	}
	return func() error { return nil }, nil
}

func (n *NCCL) Err() error { return n.unlessEnded(func() *C.char { return C.fc_nccl_state(n.comm) }) }

func (n *NCCL) Abort() error {
	if n.ended.Swap(true) {
		return nil
	}
	return errorOf("NCCL", C.fc_nccl_abort(n.comm))
}

func (n *NCCL) unlessEnded(call func() *C.char) error {
	if n.ended.Load() {
		return errors.New("NCCL: the communicator has ended")
	}
	return errorOf("NCCL", call())
}

// errorOf is a message of a library of processes.
func errorOf(library string, msg *C.char) error {
	if msg == nil {
		return nil
	}
	defer C.fc_free_string(msg)
	return fmt.Errorf("%s: %s", library, C.GoString(msg))
}
