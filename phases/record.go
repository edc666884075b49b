package phases

import (
	"fmt"
	"maps"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
)

// flight is a launched step.
type flight struct {
	lr      float64
	steps   int             // optimizer steps including this one
	spans   []Span          // the parts of the batch that are in the loss
	read    [][]float64     // its numbers
	pending *torchx.Pending // the numbers on their way, on CUDA
	graph   bool            // launched as a CUDA graph
}

// values waits for the numbers. sync
func (f *flight) values() [][]float64 {
	if f.pending == nil {
		return f.read
	}
	return f.pending.Read()
}

// stage adds a step's learning rates to its upload. Steps are staged in their order.
func (l *Learner) stage(w *work, step int) { l.Optimizer.Stage(l.rate(step), &w.Upload) }

// launch makes a step operation by operation or as a graph.
func (l *Learner) launch(w *work, step int) (*flight, error) {
	f := &flight{lr: l.rate(step)}
	compute := l.compute
	if l.env.cut() {
		compute = l.computeShards
	} else {
		f.spans = w.shards[0].spans
	}
	err := compute(w, f)
	f.steps = l.Optimizer.Steps()
	return f, err
}

// eager sends the inputs and makes the passes. On CUDA it does not wait for their numbers.
func (l *Learner) eager(w *work, f *flight) error {
	defer torchx.Scope()()
	w.Upload.Send(l.Params.Flat())
	numbers, err := l.descend(w, f.lr)
	if err != nil {
		return err
	}
	if !l.Params.Flat().OnCUDA() {
		f.read = torchx.Read(numbers...)
		return nil
	}
	packed, layout := torchx.Pack(numbers...)
	f.pending = layout.Send(packed)
	return nil
}

// A small model's step is a few hundred short kernels; launching them takes the host longer than the device computes. On CUDA
// a step that repeats is therefore recorded as a graph the second time and launched as one from the third time on.

// recording is a step that repeats.
type recording struct {
	graph   *torchx.Graph // nil until the second time
	room    torchx.Tensor // buffer from which the graph reads the Upload
	row     torchx.Tensor // buffer in which it leaves its numbers
	of      torchx.Packed // their layout
	refused error         // an operation cannot be recorded
}

// Limits on the layouts remembered for a phase and on the graphs, which keep their memory.
const (
	mostLayouts = 64
	mostGraphs  = 4
)

// compute makes a step, or launches its graph.
func (l *Learner) compute(w *work, f *flight) error {
	like := l.Params.Flat()
	if !like.OnCUDA() || l.remark(w) {
		return l.eager(w, f)
	}
	key := w.Key + w.Upload.Layout()
	r := l.recordings[key]
	switch {
	case r == nil && len(l.recordings) < mostLayouts:
		if l.recordings == nil {
			l.recordings = map[string]*recording{}
		}
		l.recordings[key] = &recording{}
	case r != nil && r.graph != nil:
		w.Upload.SendTo(r.room)
		r.graph.Replay()
		l.Optimizer.Replayed()
		f.pending, f.graph = r.of.Send(r.row), true
		return nil
	case r != nil && r.refused == nil && l.graphs() < mostGraphs:
		defer torchx.OnSideStream(like)()
		if err := l.eager(w, f); err != nil {
			return err
		}
		if failed := torchx.Try(func() error { return l.record(r, w, f) }); failed != nil {
			r.free() // the step goes on without a graph
			l.recordings[key] = &recording{refused: failed}
		}
		return nil
	case r != nil && r.refused != nil:
		l.remark(&work{Inputs: Inputs{Eager: r.refused.Error()}})
	}
	return l.eager(w, f)
}

// recorded returns the graph of a step like w, or nil.
func (l *Learner) recorded(w *work) *torchx.Graph {
	if r := l.recordings[w.Key+w.Upload.Layout()]; r != nil && w.Eager == "" {
		return r.graph
	}
	return nil
}

// remark reports whether a step cannot be recorded, and logs the reason once.
func (l *Learner) remark(w *work) bool {
	why := w.Eager
	switch {
	case torchx.Tracing():
		return true
	case l.env.Gradients != nil:
		why = "a gradient hook reads their gradients"
	case l.Optimizer.Kept() != "":
		why = l.Optimizer.Kept()
	case why == "" && (!l.Params.Clean() || l.Optimizer.KeepGrad):
		why = "gradients are kept between them"
	}
	if why != "" && !l.remarked {
		l.remarked = true
		l.env.remark = fmt.Sprintf("%s: steps are launched operation by operation, not as one CUDA graph: %s", l.phase, why)
	}
	return why != ""
}

// record makes the graph of the step just made.
func (l *Learner) record(r *recording, w *work, f *flight) error {
	like := l.Params.Flat()
	r.room = torchx.Own(w.Upload.Room(like))
	r.row = torchx.Own(torchx.FullLike(like, 0, torchx.Uint8, f.pending.Bytes()))
	var err error
	w.Upload.Open(r.room)
	steps := l.Optimizer.Steps()
	defer func() { l.Optimizer.Unrecorded(steps) }()
	r.graph = torchx.Capture(nil, func() {
		var numbers []torchx.Tensor
		if numbers, err = l.descend(w, f.lr); err == nil {
			var packed torchx.Tensor
			packed, r.of = torchx.Pack(numbers...)
			torchx.Copy(r.row, packed)
		}
	})
	return err
}

func (l *Learner) graphs() int {
	return list.Count(slices.Collect(maps.Values(l.recordings)), func(r *recording) bool { return r.graph != nil })
}

func (r *recording) free() {
	r.graph.Free()
	r.room.Free()
	r.row.Free()
}
