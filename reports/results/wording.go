package results

import (
	"fmt"
)

// A pointer policy selects examples from a pool, a token policy writes an answer. Both train through the
// same phases and leave the same files; a report must call things by their names.

// RunName is A, B, …, Z, run 27, ….
func RunName(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return fmt.Sprintf("run %d", i+1)
}
