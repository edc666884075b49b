package group

import (
	"errors"
	"fmt"
	"math"
)

// MaxReward bounds rewards and the scores they are made of, in both directions. Larger ones are mistakes, and overflow
// in means and variances.
const MaxReward = 1e30

// CheckReward returns an error that says the allowed range if v is not finite or beyond ±MaxReward.
func CheckReward(v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return errors.New("want a finite number")
	case math.Abs(v) > MaxReward:
		return fmt.Errorf("want a number within ±%g", MaxReward)
	}
	return nil
}
