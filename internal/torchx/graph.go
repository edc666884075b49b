package torchx

// #include "csrc/fulcrum_torch.h"
// #include "csrc/graph.h"
// #include "csrc/upload.h"
import "C"

import "unsafe"

// OnSideStream makes a stream of its own the current one on the CUDA device of like until the returned function is called.
// It waits for what was launched before, and what follows it waits for it. Capture records on such a stream:
//
//	defer torchx.OnSideStream(ids)()
//	step()                               // once as it is: libraries make their workspaces, kernels are compiled
//	graph := torchx.Capture(nil, step)   // recorded, nothing is computed
//	defer graph.Free()
//	graph.Replay()                       // step again, on the same memory
//
// Tensors made inside belong to that stream: they must not be freed before end has been called and used after it by others.
func OnSideStream(like Tensor) (end func()) {
	must("side stream", like)
	var side C.Side
	check("side stream", C.fc_side_begin(like.c(), &side), like)
	return func() { check("side stream", C.fc_side_end(side)) }
}

// Graph is a recorded sequence of CUDA operations on fixed memory.
type Graph struct{ g C.Graph }

// Capture records what f launches on the current stream (OnSideStream), without computing it. f must copy nothing from or to
// the host, wait for nothing, and write its results into tensors that were there before. Those that it makes lie in memory
// of the graph and die with f. The graph may use the memory of another one, which must not be replayed any more.
func Capture(share *Graph, f func()) *Graph {
	var other C.Graph
	if share != nil {
		other = share.g
	}
	g := &Graph{}
	check("graph", C.fc_graph_begin(other, &g.g))
	recorded := false
	defer func() {
		if !recorded { // f panicked, and so may the end of a broken recording
			C.fc_free_string(C.fc_graph_end(g.g))
			g.Free()
		}
	}()
	func() {
		defer Scope()()
		f()
	}()
	recorded = true
	if message := C.fc_graph_end(g.g); message != nil {
		g.Free()
		check("graph", message)
	}
	return g
}

// Replay computes everything again that was recorded, on the current stream.
func (g *Graph) Replay() { check("graph", C.fc_graph_replay(g.g)) }

// Free releases the graph and its memory. A nil graph has nothing to free.
func (g *Graph) Free() {
	if g != nil && g.g != nil {
		C.fc_graph_free(g.g)
		g.g = nil
	}
}

// Pending are numbers on their way from a CUDA device to the host.
type Pending struct {
	host   Tensor
	layout Packed
	mark   C.Mark
}

// Send begins to copy what Pack has joined to the host, behind what was launched before, and waits for nothing.
func (l Packed) Send(packed Tensor) *Pending {
	var host C.Tensor
	var data unsafe.Pointer
	check("read", C.fc_staging(C.int64_t(l.Bytes()), &host, &data))
	p := &Pending{host: Own(adopt(host)), layout: l}
	Copy(p.host, packed)
	check("read", C.fc_mark(packed.c(), &p.mark), packed)
	return p
}

// Bytes returns how many bytes they are.
func (p *Pending) Bytes() int { return p.layout.Bytes() }

// Read waits for the numbers and returns them as Packed.Read does. sync
func (p *Pending) Read() [][]float64 {
	check("read", C.fc_mark_wait(p.mark))
	defer p.host.Free()
	return p.layout.Read(p.host)
}
