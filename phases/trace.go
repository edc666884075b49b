package phases

import (
	"context"
	"errors"
	"fmt"

	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

// NonFiniteError ends a step whose rewards, loss or gradient hold NaN or infinity. The weights have not changed.
type NonFiniteError struct {
	What   string // the loss is NaN; query 4711: candidate 3 has reward NaN
	Origin string // the operation that made it; "" where unknown
	Hint   string // what to do about it
	given  bool   // the rewards hold it: there is no operation to look for
}

func (e *NonFiniteError) Error() string {
	text := e.What
	if e.Origin != "" {
		text += ": " + e.Origin
	}
	return text + "; the weights were left as they were; " + e.Hint
}

// errTraced ends a traced step before it moves the weights.
var errTraced = errors.New("traced")

// CheckRewards refuses rewards that are not numbers, unless the run allows them.
func CheckRewards(b *selector.Batch, allowed bool) error {
	for at, r := range b.Rewards {
		if notFinite(r) && b.Valid[at] && !allowed {
			q := b.Queries[at/b.G]
			return &NonFiniteError{What: fmt.Sprintf("query %d of %s: candidate %d of its group has reward %v", b.Source.ID(q), b.Source.Name(),
				at%b.G, r),
				Hint: "look at what scores it", given: true}
		}
	}
	return nil
}

// explain makes a failed step again where its loss or gradient was not finite, with every operation followed, and
// adds the one that made the first NaN or infinity. What it says is recorded as an event before the run ends.
func (s *scheduler) explain(ctx context.Context, failed error, phase Phase, at At) error {
	var bad *NonFiniteError
	if !errors.As(failed, &bad) {
		return failed
	}
	finding := doctor.Finding{Check: "nonfinite", Severity: doctor.Stop}
	if !bad.given {
		finding.Key, bad.Origin = phase.Info().Name+".lr", s.origin(ctx, phase, at)
	}
	finding.Message = bad.Error()
	if err := s.env.Rec.Record("event", phase.Info().Name, at.Epoch, s.pos.Step+1, s.pos.GlobalStep+1, finding.Fields()); err != nil {
		return err
	}
	return failed
}

// origin makes a step again in tracing mode, which moves no weights, and says what made the first number that is
// not finite.
func (s *scheduler) origin(ctx context.Context, phase Phase, at At) string {
	rec := s.env.Rec
	s.env.Rec = deaf{rec} // the first attempt has recorded what it sampled
	defer func() { s.env.Rec = rec }()
	origin, err := torchx.Trace(func() error {
		_, err := s.step(ctx, phase, at)
		return err
	})
	switch {
	case origin != nil:
		return origin.String()
	case errors.Is(err, errTraced):
		return "made again, the step has only finite numbers: the memory or the device is at fault, or the norm of a huge gradient overflows"
	}
	return ""
}

// deaf is a Recorder that records nothing.
type deaf struct{ Recorder }

func (deaf) Completions(string, int, int, []Completion) error { return nil }
