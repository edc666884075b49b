package phases

import (
	"cmp"
	"context"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// At names a step of a phase: Step counts from 0 over the whole phase, Pass over the steps on one batch.
type At struct {
	Epoch, Step, Pass int
	Queries           []int
	// Next are the certain next steps, at most two: nothing reads the policy before the first of them.
	Next []At
}

// Algorithm is a phase's share of a step. R is the step's batch on the host, I the device's inputs for a pass over a part of it.
type Algorithm[R, I any] interface {
	// Collect makes the batch of a step on the host: candidates, rewards, advantages. It changes nothing of the phase.
	Collect(ctx context.Context, at At) (R, error)
	// Size is the number of a batch's queries, between which a step is cut into parts.
	Size(batch R) int
	// Inputs puts what Loss reads of a part of the batch on its way to the device. Losses and gradients of the parts add up to those of
	// the batch. ok is false where nothing of the part is in the loss.
	Inputs(batch R, of Span, in *Inputs) (part I, ok bool)
	// Loss computes a part's share of the loss on the device: a scalar with gradient. read are further tensors for the host.
	Loss(part I) (loss torchx.Tensor, read []torchx.Tensor)
}

// Span is a part of a batch: its queries From … To-1.
type Span struct{ From, To int }

// Inputs are the numbers that the passes of a step read on the device.
type Inputs struct {
	Upload torchx.Upload // the host's numbers
	// Key tells one sequence of operations from another. Steps with the same Key and the same layout of Upload launch the same
	// operations, which copy nothing from or to the host: unless Eager says why not, a CUDA graph replays them.
	Key   string
	Eager string
}

// Refuse says why no CUDA graph can hold the step, if there is a reason and none was known before.
func (in *Inputs) Refuse(why string) {
	in.Eager = cmp.Or(in.Eager, why)
}

// Forward stages a policy's forward pass over a batch. The returned function is that pass on the device.
func (in *Inputs) Forward(p selector.Policy, b *selector.Batch, opt selector.ForwardOptions) func(selector.ForwardOptions) selector.Output {
	forward, eager := selector.Stage(p, b, &in.Upload, opt)
	in.Refuse(eager)
	return forward
}

// work is the device's part of a step.
type work struct {
	Inputs
	shards []shard // those that this process computes: one, unless the step is cut into several (shards.go)
}

// Stepped is a step that was made.
type Stepped[R any] struct {
	OptimizerMetrics
	Batch R
	Spans []Span        // the parts of the batch that are in the loss
	Read  [][][]float64 // the values of the tensors read of each part's Loss
}

// Steps makes the optimizer steps of a phase, one after another. Work done ahead (ahead.go) changes no number.
type Steps[R, I any] struct {
	learn *Learner
	of    Algorithm[R, I]
	micro *int        // queries of a pass; nil: a shard has one pass
	ahead *planned[R] // the next step, launched if it can be
	later *planned[R] // the one after it, which a goroutine collects
}

// NewSteps returns the steps of a phase with its optimizer. A pass has at most micro queries; nil: as many as there are.
func NewSteps[R, I any](learn *Learner, of Algorithm[R, I], micro *int) *Steps[R, I] {
	return &Steps[R, I]{learn: learn, of: of, micro: micro}
}

// Make makes a step. Its batch is known where the loss has failed, too.
func (s *Steps[R, I]) Make(ctx context.Context, at At) (of Stepped[R], err error) {
	now := s.take(ctx, at)    // Collect and Inputs
	s.launch(now)             // Loss, backward pass, clipping, AdamW
	s.lookAhead(ctx, at, now) // while the device is at it
	of.Batch, err = now.batch, now.err
	var values [][]float64
	if err == nil {
		of.Spans = now.flight.spans
		of.OptimizerMetrics, values, err = s.learn.land(now.flight) // sync
	}
	if err != nil {
		s.drop()
		return of, err
	}
	for len(of.Read) < len(of.Spans) { // each part has read as much
		n := len(values) / (len(of.Spans) - len(of.Read))
		of.Read, values = append(of.Read, values[:n]), values[n:]
	}
	return of, nil
}

// backward adds the gradient of a part's loss.
func (s *Steps[R, I]) backward(part I) (loss torchx.Tensor, read []torchx.Tensor) {
	defer torchx.Scope()()
	loss, read = s.of.Loss(part)
	torchx.Backward(loss)
	for i, x := range read {
		if !x.Nil() {
			read[i] = torchx.Keep(torchx.Detach(x))
		}
	}
	return torchx.Keep(torchx.Detach(loss)), read
}

// descend makes the passes and the optimizer step. It returns the numbers to read: those of update, and the tensors of Loss.
func (l *Learner) descend(w *work, lr float64) ([]torchx.Tensor, error) {
	losses, read := l.passes(w.shards[0])
	numbers, err := l.update(flat(losses), lr)
	return append(numbers, read...), err
}

// update makes the optimizer step by the gradient of the whole batch. It returns Σ g², Σ m² and the losses [n].
func (l *Learner) update(losses torchx.Tensor, lr float64) ([]torchx.Tensor, error) {
	if err := l.prepare(); err != nil {
		return nil, err
	}
	squares := torchx.SumSquares(l.Params.Grad())
	l.Optimizer.StepClipped(lr, l.clip, squares, losses, !l.env.AllowNonFinite)
	return []torchx.Tensor{squares, l.Optimizer.MomentSquares(), losses}, nil
}

// prepare leaves frozen parameters no gradient, but that of a hook.
func (l *Learner) prepare() error {
	for _, part := range l.Frozen {
		torchx.Copy(part.Grad, torchx.FullLike(part.Grad, 0, part.Grad.DType(), 1))
	}
	if hook := l.env.Gradients; hook != nil {
		hook.Backward(l)
	}
	if torchx.Tracing() {
		return errTraced
	}
	return nil
}
