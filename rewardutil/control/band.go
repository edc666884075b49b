// Package control moves the KL coefficient and the policy's temperature by the KL.
package control

import (
	"errors"
	"math"

	"fulcrum/internal/option"
)

// ControlState is the whole state of a controller that follows the KL. It is plain data, so that a run
// resumed from it goes on bit for bit.
type State struct {
	Value     float64 `json:"value"`      // the controlled number: β or the policy's temperature
	EpochSum  float64 `json:"epoch_sum"`  // of the KLs since the epoch's start
	EpochN    int     `json:"epoch_n"`    //
	Average   float64 `json:"average"`    // moving average of the KL, before its bias correction
	AverageN  int     `json:"average_n"`  // steps in it
	SinceMove int     `json:"since_move"` // steps since the moving average last moved the value
	Moves     int     `json:"moves"`      // moves so far
	AtMin     int     `json:"at_min"`     // decisions that found the value on its lower bound, or pushed it there
	AtMax     int     `json:"at_max"`     // the same for its upper bound
	Ignored   int     `json:"ignored"`    // KLs that were NaN or infinite
}

// Change is what a controller did with a KL.
type Change struct {
	Decided       bool    // false: this call was not one that decides
	KL            float64 // the mean, average or single KL of the decision
	Before, After float64
	Bound         string // "min" or "max" where the decision wanted to go past that bound, else ""
}

// band is the part that the controllers of β and of the policy's temperature share: which KL decides, and
// when, and the counting of bounds.
type band struct {
	targetMin, targetMax, factor, min, max float64
	update                                 string
	decay                                  float64
}

func (b band) validate(name string) error {
	return errors.Join(
		option.Want(b.targetMin >= 0, "target_min", "want at least 0 nats, got %v", b.targetMin),
		option.Want(b.targetMax > b.targetMin && !math.IsInf(b.targetMax, 0), "target_max", "want more than target_min = %v, got %v", b.targetMin,
			b.targetMax),
		option.Want(b.factor > 1 && !math.IsInf(b.factor, 0), "factor", "want more than 1, got %v", b.factor),
		option.Want(b.min > 0, boundName(name, "min"), "want more than 0, got %v", b.min),
		option.Want(b.max >= b.min && !math.IsInf(b.max, 0), boundName(name, "max"), "want at least %s = %v, got %v", boundName(name, "min"),
			b.min, b.max),
		option.OneOf("update", b.update, "step", "epoch", "moving_average"),
		option.Want(b.decay >= 0 && b.decay < 1, "moving_average_decay", "want a number in [0, 1), got %v", b.decay),
	)
}

type mover func(value, kl float64) float64

// step takes the KL of one optimizer step. A moving average decides at most once per averaging window,
// 1/(1-decay) steps: it answers late, and a factor applied at every step until it does would overshoot.
func (b band) step(s *State, kl float64, move mover) Change {
	if math.IsNaN(kl) || math.IsInf(kl, 0) && b.update != "step" {
		s.Ignored++
		return Change{}
	}
	switch b.update {
	case "step":
		return b.decide(s, kl, move)
	case "moving_average":
		s.Average = b.decay*s.Average + (1-b.decay)*kl
		s.AverageN++
		s.SinceMove++
		if float64(s.SinceMove)*(1-b.decay) < 1-1e-9 {
			return Change{}
		}
		mean := s.Average / (1 - math.Pow(b.decay, float64(s.AverageN))) // bias correction, as in Adam
		change := b.decide(s, mean, move)
		if change.After != change.Before {
			s.SinceMove = 0
		}
		return change
	default:
		s.EpochSum += kl
		s.EpochN++
		return Change{}
	}
}

// endEpoch decides on the mean KL of the epoch's steps; it does nothing for the other updates.
func (b band) endEpoch(s *State, move mover) Change {
	if s.EpochN == 0 || b.update != "epoch" {
		return Change{}
	}
	mean := s.EpochSum / float64(s.EpochN)
	s.EpochSum, s.EpochN = 0, 0
	return b.decide(s, mean, move)
}

func (b band) decide(s *State, kl float64, move mover) Change {
	change := Change{Decided: true, KL: kl, Before: s.Value}
	s.Value = move(s.Value, kl)
	change.After = s.Value
	if change.After != change.Before {
		s.Moves++
	}
	switch { // a high KL always asks for a higher value
	case kl < b.targetMin && change.After <= b.min:
		s.AtMin++
		change.Bound = "min"
	case kl > b.targetMax && change.After >= b.max:
		s.AtMax++
		change.Bound = "max"
	}
	return change
}

// boundName is the key of a bound: beta_min, or min where the section names the value already.
func boundName(name, bound string) string {
	if name == "" {
		return bound
	}
	return name + "_" + bound
}
