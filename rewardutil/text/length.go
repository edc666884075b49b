package text

import (
	"strings"
	"unicode"
)

// LengthSimilarity returns min(a, b) / max(a, b) for the numbers of words of two texts, 0 where both are
// empty. White space separates words as in Python's split: Unicode's, and the four ASCII separators.
func LengthSimilarity(a, b string) float64 {
	n, m := words(a), words(b)
	return float64(min(n, m)) / float64(max(1, n, m))
}

func words(s string) int {
	return len(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }))
}
