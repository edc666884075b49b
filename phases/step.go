package phases

import (
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
	// Inputs puts what Loss reads on its way to the device, cut into parts whose losses and gradients add up (micro_batch).
	Inputs(batch R, in *Inputs) []I
	// Loss computes a part's share of the loss on the device: a scalar with gradient. read are further tensors for the host.
	Loss(part I) (loss torchx.Tensor, read []torchx.Tensor)
}

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
	if in.Eager == "" {
		in.Eager = why
	}
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
	// passes makes the forward and backward passes. It returns the parts of the loss (scalars) and the tensors that Loss asks to read.
	passes func() (losses, read []torchx.Tensor)
}

// Stepped is a step that was made.
type Stepped[R, I any] struct {
	OptimizerMetrics
	Batch R
	Parts []I
	Read  [][][]float64 // the values of the tensors read of each part's Loss
}

// Steps makes the optimizer steps of a phase, one after another. Work done ahead (ahead.go) changes no number.
type Steps[R, I any] struct {
	learn *Learner
	of    Algorithm[R, I]
	ahead *planned[R, I] // the next step, launched if it can be
	later *planned[R, I] // the one after it, which a goroutine collects
}

// NewSteps returns the steps of a phase with its optimizer.
func NewSteps[R, I any](learn *Learner, of Algorithm[R, I]) *Steps[R, I] {
	return &Steps[R, I]{learn: learn, of: of}
}

// Make makes a step. Its batch is known where the loss has failed, too.
func (s *Steps[R, I]) Make(ctx context.Context, at At) (of Stepped[R, I], err error) {
	now := s.take(ctx, at)    // Collect and Inputs
	s.launch(now)             // Loss, backward pass, clipping, AdamW
	s.lookAhead(ctx, at, now) // while the device is at it
	of.Batch, of.Parts, err = now.batch, now.parts, now.err
	var values [][]float64
	if err == nil {
		of.OptimizerMetrics, values, err = s.learn.land(now.flight) // sync
	}
	if err != nil {
		s.drop()
		return of, err
	}
	for len(of.Read) < len(of.Parts) { // each part has read as much
		n := len(values) / (len(of.Parts) - len(of.Read))
		of.Read, values = append(of.Read, values[:n]), values[n:]
	}
	return of, nil
}

// inputs asks the algorithm for the inputs of the passes.
func (s *Steps[R, I]) inputs(p *planned[R, I]) {
	p.work = &work{}
	p.parts = s.of.Inputs(p.batch, &p.work.Inputs)
	p.work.passes = func() (losses, read []torchx.Tensor) {
		for _, part := range p.parts {
			loss, more := s.backward(part)
			losses, read = append(losses, loss), append(read, more...)
		}
		return losses, read
	}
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

// descend makes the passes and the optimizer step. It returns the numbers to read: Σ g², Σ m², the losses [n] and the tensors of
// Loss.
func (l *Learner) descend(w *work, lr float64) ([]torchx.Tensor, error) {
	l.Params.ZeroGrad()
	losses, read := w.passes()
	for _, part := range l.Frozen {
		torchx.Copy(part.Grad, torchx.FullLike(part.Grad, 0, part.Grad.DType(), 1))
	}
	if hook := l.env.Gradients; hook != nil {
		hook.Backward(l)
	}
	if torchx.Tracing() {
		return nil, errTraced
	}
	parts, squares := flat(losses), torchx.SumSquares(l.Params.Grad())
	l.Optimizer.StepClipped(lr, l.clip, squares, parts, !l.env.AllowNonFinite)
	return append([]torchx.Tensor{squares, torchx.SumSquares(l.Optimizer.Moment()), parts}, read...), nil
}
