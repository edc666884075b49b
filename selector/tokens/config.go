package tokens

import "fmt"

// Positive returns an error for the first number that is below 1; it names prefix and key.
func Positive(prefix string, keys []string, values ...int) error {
	for i, v := range values {
		if v < 1 {
			return fmt.Errorf("%s%s = %d, want at least 1", prefix, keys[i], v)
		}
	}
	return nil
}
