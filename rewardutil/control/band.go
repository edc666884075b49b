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
}

// band is the part that the controllers of β and of the policy's temperature share: which KL decides, and
// when.
type band struct {
	targetMin, targetMax, factor, min, max float64
	update                                 string
	decay                                  float64
}

// validate refuses an empty band and crossed bounds, whose keys begin with prefix.
func (b band) validate(prefix string) error {
	return errors.Join(
		option.Want(b.targetMax > b.targetMin, "target_max", "want more than target_min = %v, got %v", b.targetMin, b.targetMax),
		option.Want(b.max >= b.min, prefix+"max", "want at least %smin = %v, got %v", prefix, b.min, b.max),
	)
}

type mover func(value, kl float64) float64

// step takes the KL of one optimizer step. A moving average decides at most once per averaging window,
// 1/(1-decay) steps: it answers late, and a factor applied at every step until it does would overshoot.
func (b band) step(s *State, kl float64, move mover) {
	switch {
	case math.IsNaN(kl) || math.IsInf(kl, 0) && b.update != "step":
	case b.update == "step":
		s.Value = move(s.Value, kl)
	case b.update == "epoch":
		s.EpochSum += kl
		s.EpochN++
	default:
		s.Average = b.decay*s.Average + (1-b.decay)*kl
		s.AverageN++
		s.SinceMove++
		if float64(s.SinceMove)*(1-b.decay) < 1-1e-9 {
			return
		}
		before, mean := s.Value, s.Average/(1-math.Pow(b.decay, float64(s.AverageN))) // bias correction, as in Adam
		if s.Value = move(before, mean); s.Value != before {
			s.SinceMove = 0
		}
	}
}

// endEpoch decides on the mean KL of the epoch's steps; it does nothing for the other updates.
func (b band) endEpoch(s *State, move mover) {
	if s.EpochN > 0 && b.update == "epoch" {
		s.Value = move(s.Value, s.EpochSum/float64(s.EpochN))
		s.EpochSum, s.EpochN = 0, 0
	}
}
