package phases

import (
	"fmt"
	"sort"
	"strings"

	"fulcrum/internal/torchx"
)

// stillParams are the parameters that a phase leaves as they are (grpo.freeze). Their gradient is
// replaced after every backward pass: by zero or, in compat, by the stale gradient that the reference
// leaves there (defect D6): the clipped one of the phase before, which enters the norm of every step and
// is clipped with it each time. The zero value of the pointer freezes nothing.
type stillParams struct {
	names map[string]bool
	parts []stillPart
}

// stillPart is a stretch [start, end) of the flat buffers.
type stillPart struct {
	start, end int
	grad       torchx.Tensor // [end-start] view of the gradient buffer
	stale      torchx.Tensor // [end-start]; no tensor: zero
}

// FrozenNames finds the parameters whose name contains one of parts; each must name at least one, or,
// where any is enough, one of them must.
func FrozenNames(p *torchx.Params, parts []string, any bool) (map[string]bool, error) {
	names := map[string]bool{}
	for _, part := range parts {
		found := false
		for _, name := range p.Names() {
			if strings.Contains(name, part) {
				names[name], found = true, true
			}
		}
		if !found && !any {
			return nil, fmt.Errorf("freeze: %q is in no parameter's name; there are %s", part, strings.Join(p.Names(), ", "))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("freeze: none of %v is in a parameter's name; there are %s", parts, strings.Join(p.Names(), ", "))
	}
	return names, nil
}

// newStillParams freezes the parameters of stillNames.
func newStillParams(p *torchx.Params, parts []string, any bool) (*stillParams, error) {
	names, err := FrozenNames(p, parts, any)
	if err != nil {
		return nil, err
	}
	s := &stillParams{names: names}
	for name := range s.names {
		start, end := p.Range(name)
		s.parts = append(s.parts, stillPart{start: start, end: end})
	}
	sort.Slice(s.parts, func(i, j int) bool { return s.parts[i].start < s.parts[j].start })
	defer torchx.Scope()()
	merged := s.parts[:1]
	for _, part := range s.parts[1:] {
		if last := &merged[len(merged)-1]; last.end == part.start {
			last.end = part.end
		} else {
			merged = append(merged, part)
		}
	}
	s.parts = merged
	for i := range s.parts {
		part := &s.parts[i]
		part.grad = torchx.Own(torchx.Narrow(p.Grad(), 0, part.start, part.end-part.start))
	}
	return s, nil
}

// SetStale makes the frozen parameters keep their stretches of a whole gradient [N].
func (s *stillParams) SetStale(gradient []float32) {
	defer torchx.Scope()()
	for i := range s.parts {
		part := &s.parts[i]
		part.stale.Free()
		part.stale = torchx.Own(torchx.ToLike(torchx.From(gradient[part.start:part.end], part.end-part.start), part.grad))
	}
}

// StaleGradient returns a whole gradient [N] with the stretches that the frozen parameters keep, nil without any.
func (s *stillParams) StaleGradient(n int) []float32 {
	if s == nil || s.parts[0].stale.Nil() {
		return nil
	}
	out := make([]float32, n)
	for _, part := range s.parts {
		copy(out[part.start:], torchx.Data[float32](part.stale))
	}
	return out
}

// replace puts zero or the stale gradient in place of the one that a backward pass has made.
func (s *stillParams) replace() {
	if s == nil {
		return
	}
	for _, part := range s.parts {
		if part.stale.Nil() {
			torchx.Copy(part.grad, torchx.FullLike(part.grad, 0, part.grad.DType(), 1))
		} else {
			torchx.Copy(part.grad, part.stale)
		}
	}
}

// clip multiplies the stale gradient by the step's clipping factor and returns its norm; ok is false
// where there is none.
func (s *stillParams) clip(scale float64) (norm float64, ok bool) {
	if s == nil || s.parts[0].stale.Nil() {
		return 0, false
	}
	var sum torchx.Tensor
	for _, part := range s.parts {
		torchx.Copy(part.stale, torchx.Scale(part.stale, scale))
		squares := torchx.Sum(torchx.Square(part.stale.To(torchx.Float64)))
		if sum.Nil() {
			sum = squares
		} else {
			sum = torchx.Add(sum, squares)
		}
	}
	return torchx.Sqrt(sum).Item(), true
}

func (s *stillParams) Free() {
	if s == nil {
		return
	}
	for _, part := range s.parts {
		part.grad.Free()
		part.stale.Free()
	}
}
