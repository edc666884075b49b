package phases

import (
	"fulcrum/internal/ranks"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// validated holds the validations that this process has made: no policy is evaluated twice. A resume does it again, with equal numbers.
type validated map[scored]Validation

// scored is the policy of a checkpoint on the queries of a source. A split's name would not do: a held-out file may be called val.
type scored struct {
	file string
	src  selector.Source
}

// reference is the policy that a KL is measured against, with its name in metrics.jsonl; no policy: no KL is measured.
type reference struct {
	policy selector.Policy
	name   string
	first  bool // it has the weights that the run began with
}

// referenceOf returns the reference of a phase.
func (s *scheduler) referenceOf(p Phase) reference {
	policy, name := ReferenceOf(p, s.env)
	initial := name == initReference && policy == s.env.Initial // not where it was rebuilt with other heads
	return reference{policy, name, initial || name == phaseStartReference && s.pos.PhaseIndex == 0}
}

// initial is the run's initial policy as a reference.
func (s *scheduler) initial() reference { return reference{s.env.Initial, initReference, true} }

// validate returns the numbers on the queries of src of the policy p, which has the weights of a checkpoint.
func (s *scheduler) validate(file string, src selector.Source, p selector.Policy, ref reference) (Validation, error) {
	of := scored{file, src}
	v, known := s.validated[of]
	if known && (ref.first && v.against.first || ref.name == phaseStartReference && v.against == ref) {
		return v, nil
	}
	var err error
	if file == InitialCheckpoint && ref.first { // the same weights: no KL is computed, in a resumed run, which has two copies, neither
		ref.policy = p
	}
	if known {
		err = v.measureKL(s.env.Ranks, p, ref.policy)
	} else {
		v, err = Validate(s.env.Ranks, p, ref.policy, src, s.env.Data)
	}
	if v.against = ref; err == nil {
		s.validated[of] = v
	}
	return v, err
}

// measureKL replaces the KL by that of the same policy to another reference, on the same selections.
func (v *Validation) measureKL(by *ranks.Group, p, reference selector.Policy) error {
	defer torchx.NoGrad()()
	var own []float64
	var failed error
	for _, greedy := range v.greedy {
		if failed = torchx.Try(func() error {
			defer torchx.Scope()()
			own = append(own, klOf(p, reference, greedy))
			return nil
		}); failed != nil {
			break
		}
	}
	all, err := gathered(by, "the KL of a validation", own, failed)
	if err != nil {
		return err
	}
	v.setKL(stat.Sum(all), reference)
	return nil
}

// klOf returns the sum over the candidates of b of the KL to the reference, in nats; 0 to itself and without one. sync
func klOf(policy, reference selector.Policy, b *selector.Batch) float64 {
	if reference == nil || policy == reference {
		return 0
	}
	return torchx.Sum(objective.MaskedSum(exactKL(policy, reference, b), b)).Item()
}
