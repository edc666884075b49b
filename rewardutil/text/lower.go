package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lower is str.lower() of Python, which the evaluations call: İ keeps its dot, and a Σ that ends a word is ς. Go has i and σ.
func Lower(s string) string {
	if !strings.ContainsAny(s, "İΣ") { // as most texts
		return strings.ToLower(s)
	}
	s = strings.ReplaceAll(s, "İ", "i\u0307")
	lower := []byte(s)
	for at, r := range s {
		if r != 'Σ' {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(s[:at], ignorable))
		after, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s[at+len("Σ"):], ignorable))
		if cased(before) && !cased(after) {
			copy(lower[at:], "ς")
		}
	}
	return strings.ToLower(string(lower))
}

func cased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Uppercase, unicode.Other_Lowercase)
}

// ignorable is Unicode's Case_Ignorable: marks, and what may stand inside of a word.
func ignorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:·\u0387՟״‘’․‧︓﹒﹕＇．：", r)
}
