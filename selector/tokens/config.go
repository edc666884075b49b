package tokens

import "fmt"

// Or returns what a config.json says, or what holds where it says nothing.
func Or[T any](said *T, otherwise T) T {
	if said == nil {
		return otherwise
	}
	return *said
}

// Positive names the first number of a config.json that should be positive and is not, by its key behind a prefix.
func Positive(prefix string, keys []string, values ...int) error {
	for i, v := range values {
		if v < 1 {
			return fmt.Errorf("%s%s = %d, want at least 1", prefix, keys[i], v)
		}
	}
	return nil
}
