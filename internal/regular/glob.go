package regular

import (
	"path/filepath"
	"strings"
)

// Glob lists what matches a pattern in a folder whose own name means itself: a run's may be called schedule=[rce,grpo].
func Glob(dir, pattern string) ([]string, error) {
	literal := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
	return filepath.Glob(filepath.Join(literal, pattern))
}
