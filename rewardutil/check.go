package rewardutil

import (
	"slices"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/internal/registry"
)

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
