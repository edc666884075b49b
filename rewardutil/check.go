package rewardutil

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/internal/registry"
)

// MaxReward bounds rewards and the scores they are made of, in both directions. Larger ones are mistakes, and overflow
// in means and variances.
const MaxReward = 1e30

// CheckReward returns what a reward or a score should be, where v is not finite or beyond ±MaxReward.
func CheckReward(v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return errors.New("want a finite number")
	case math.Abs(v) > MaxReward:
		return fmt.Errorf("want a number within ±%g", MaxReward)
	}
	return nil
}

// oneOf reports a value of key that is not among names, with the nearest one.
func oneOf(key, value string, names ...string) error {
	if slices.Contains(names, value) {
		return nil
	}
	if near, ok := registry.Nearest(value, names); ok {
		return option.Errorf(key, "want one of %s, got %q (did you mean %s?)", strings.Join(names, ", "), value, near)
	}
	return option.Errorf(key, "want one of %s, got %q", strings.Join(names, ", "), value)
}

// want reports key when its condition does not hold.
func want(holds bool, key, format string, args ...any) error {
	if holds {
		return nil
	}
	return option.Errorf(key, format, args...)
}
