package phases

import (
	"fulcrum/internal/torchx"
)

// Work is what a step computes on the device.
type Work struct {
	Upload torchx.Upload // the host data that Passes reads
	// Recordable says that Passes copies nothing from or to the host, and that all steps with the same Key whose Upload has the same layout
	// launch the same operations: the host's numbers must come with the Upload.
	Recordable bool
	// Key is what else tells one sequence of operations from another.
	Key string
	// Passes makes the forward and backward passes. It returns the parts of the loss (scalars) and what else is to be measured.
	Passes func() (losses, measured []torchx.Tensor)
}

// A small model's step is a few hundred short kernels, whose launch takes the host longer than the device computes. On CUDA
// a step that comes again is therefore recorded as a graph at its second time and launched as one from the third on.

// recording is a step that comes again.
type recording struct {
	graph   *torchx.Graph // nil until the second time
	room    torchx.Tensor // that the graph reads the Upload from
	row     torchx.Tensor // that it leaves its numbers in
	of      torchx.Packed // their layout
	refused bool          // an operation of it cannot be recorded
}

// Limits of how many layouts of a phase are remembered, and how many graphs, which keep their memory.
const (
	mostLayouts = 64
	mostGraphs  = 4
)

// compute makes a step, or its graph does, and reads its numbers. sync
func (l *Learner) compute(w *Work, lr float64) ([][]float64, error) {
	like := l.Params.Flat()
	if !w.Recordable || !like.OnCUDA() || l.env.Gradients != nil || torchx.Tracing() || !l.Params.Clean() || l.Optimizer.KeepGrad {
		return l.eager(w, lr)
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
		return r.of.Read(r.row), nil
	case r != nil && !r.refused && l.graphs() < mostGraphs:
		defer torchx.OnSideStream(like)()
		values, err := l.eager(w, lr)
		if err == nil && torchx.Try(func() error { return l.record(r, w, lr, values) }) != nil {
			r.free() // what cannot be recorded goes on as before
			l.recordings[key] = &recording{refused: true}
		}
		return values, err
	}
	return l.eager(w, lr)
}

// eager sends what the passes read and makes them.
func (l *Learner) eager(w *Work, lr float64) ([][]float64, error) {
	w.Upload.Send(l.Params.Flat())
	numbers, err := l.descend(w, lr)
	if err != nil {
		return nil, err
	}
	return torchx.Read(numbers...), nil
}

// record makes the graph of a step that has just been made.
func (l *Learner) record(r *recording, w *Work, lr float64, values [][]float64) error {
	like := l.Params.Flat()
	r.room = torchx.Own(w.Upload.Room(like))
	n := 0
	for _, v := range values {
		n += len(v)
	}
	r.row = torchx.Own(torchx.FullLike(like, 0, torchx.Uint8, 8*n)) // float32 or float64
	var err error
	w.Upload.Open(r.room)
	steps := l.Optimizer.Steps()
	defer func() { l.Optimizer.Unrecorded(steps) }()
	r.graph = torchx.Capture(nil, func() {
		var numbers []torchx.Tensor
		if numbers, err = l.descend(w, lr); err == nil {
			var packed torchx.Tensor
			packed, r.of = torchx.Pack(numbers...)
			torchx.Copy(torchx.Narrow(r.row, 0, 0, r.of.Bytes()), packed)
		}
	})
	r.row = shortened(r.row, r.of.Bytes())
	return err
}

// shortened is a view of the first n entries, owned in the place of x.
func shortened(x torchx.Tensor, n int) torchx.Tensor {
	defer x.Free()
	return torchx.Own(torchx.Narrow(x, 0, 0, n))
}

func (l *Learner) graphs() int {
	n := 0
	for _, r := range l.recordings {
		if r.graph != nil {
			n++
		}
	}
	return n
}

func (r *recording) free() {
	r.graph.Free()
	r.room.Free()
	r.row.Free()
}
