package text

import (
	"strings"
	"sync"
)

// PorterStem returns the stem of an English word: Porter's algorithm with the additions of NLTK's default mode,
// which rouge_score uses. Source: Porter 1980, "An algorithm for suffix stripping".
func Stem(word string) string {
	w := strings.ToLower(word)
	if stem, ok := irregular()[w]; ok {
		return stem
	}
	if len(w) <= 2 {
		return w
	}
	return porter5(porter4(porter3(porter2(porter1c(porter1b(porter1a(w)))))))
}

// irregular holds the stems of the words that NLTK looks up.
var irregular = sync.OnceValue(func() map[string]string {
	return map[string]string{"sky": "sky", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie",
		"inning": "inning", "innings": "inning", "outing": "outing", "outings": "outing", "canning": "canning", "cannings": "canning",
		"news": "news", "howe": "howe", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed"}
})

// consonant reports what is no vowel: not a, e, i, o, u, nor y after a consonant. Digits are consonants.
func consonant(w string, i int) bool {
	switch w[i] {
	case 'a', 'e', 'i', 'o', 'u':
		return false
	case 'y':
		return i == 0 || !consonant(w, i-1)
	}
	return true
}

// measure is Porter's m: how often a consonant follows a vowel.
func measure(w string) int {
	m := 0
	for i := 1; i < len(w); i++ {
		if consonant(w, i) && !consonant(w, i-1) {
			m++
		}
	}
	return m
}

func hasVowel(w string) bool {
	for i := range len(w) {
		if !consonant(w, i) {
			return true
		}
	}
	return false
}

// doubled is Porter's *d: the word ends in two equal consonants.
func doubled(w string) bool {
	n := len(w)
	return n >= 2 && w[n-1] == w[n-2] && consonant(w, n-1)
}

// short is Porter's *o: consonant, vowel, consonant at the end, the last not w, x or y; NLTK adds words that are
// just a vowel and a consonant.
func short(w string) bool {
	n := len(w)
	if n == 2 {
		return !consonant(w, 0) && consonant(w, 1)
	}
	return n >= 3 && consonant(w, n-3) && !consonant(w, n-2) && consonant(w, n-1) && !strings.ContainsRune("wxy", rune(w[n-1]))
}

func porter1a(w string) string {
	switch {
	case strings.HasSuffix(w, "ies") && len(w) == 4:
		return w[:3]
	case strings.HasSuffix(w, "ies"), strings.HasSuffix(w, "sses"):
		return w[:len(w)-2]
	case strings.HasSuffix(w, "ss"):
		return w
	}
	return strings.TrimSuffix(w, "s")
}

func porter1b(w string) string {
	if stem, ok := strings.CutSuffix(w, "ied"); ok {
		if len(w) == 4 {
			return stem + "ie"
		}
		return stem + "i"
	}
	if stem, ok := strings.CutSuffix(w, "eed"); ok {
		if measure(stem) > 0 {
			return stem + "ee"
		}
		return w
	}
	stem, ok := strings.CutSuffix(w, "ed")
	if !ok || !hasVowel(stem) {
		if stem, ok = strings.CutSuffix(w, "ing"); !ok || !hasVowel(stem) {
			return w
		}
	}
	switch {
	case strings.HasSuffix(stem, "at"), strings.HasSuffix(stem, "bl"), strings.HasSuffix(stem, "iz"):
		return stem + "e"
	case doubled(stem):
		if strings.ContainsRune("lsz", rune(stem[len(stem)-1])) {
			return stem
		}
		return stem[:len(stem)-1]
	case measure(stem) == 1 && short(stem):
		return stem + "e"
	}
	return stem
}

func porter1c(w string) string {
	if stem, ok := strings.CutSuffix(w, "y"); ok && len(stem) > 1 && consonant(stem, len(stem)-1) {
		return stem + "i"
	}
	return w
}

// suffix is a rule of the steps 2 to 4. The first that fits decides, even if the stem is too short for it.
type suffix struct{ old, new string }

func porter2(w string) string {
	if stem, ok := strings.CutSuffix(w, "alli"); ok && measure(stem) > 0 {
		return porter2(stem + "al")
	}
	for _, s := range [...]suffix{
		{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"}, {"bli", "ble"}, {"alli", "al"},
		{"entli", "ent"}, {"eli", "e"}, {"ousli", "ous"}, {"ization", "ize"}, {"ation", "ate"}, {"ator", "ate"}, {"alism", "al"},
		{"iveness", "ive"}, {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"}, {"iviti", "ive"}, {"biliti", "ble"}, {"fulli", "ful"},
	} {
		if stem, ok := strings.CutSuffix(w, s.old); ok {
			return replaced(w, stem, s.new, 0)
		}
	}
	if stem, ok := strings.CutSuffix(w, "ogi"); ok && strings.HasSuffix(stem, "l") && measure(stem) > 0 {
		return stem + "og" // logi: the l counts as part of the stem
	}
	return w
}

func porter3(w string) string {
	for _, s := range [...]suffix{{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"}, {"ful", ""},
		{"ness", ""}} {
		if stem, ok := strings.CutSuffix(w, s.old); ok {
			return replaced(w, stem, s.new, 0)
		}
	}
	return w
}

func porter4(w string) string {
	for _, old := range [...]string{
		"al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti", "ous", "ive", "ize",
	} {
		stem, ok := strings.CutSuffix(w, old)
		if !ok || old == "ion" && !strings.HasSuffix(stem, "s") && !strings.HasSuffix(stem, "t") {
			continue
		}
		return replaced(w, stem, "", 1)
	}
	return w
}

func replaced(w, stem, end string, above int) string {
	if measure(stem) > above {
		return stem + end
	}
	return w
}

func porter5(w string) string {
	if stem, ok := strings.CutSuffix(w, "e"); ok {
		if m := measure(stem); m > 1 || m == 1 && !short(stem) {
			w = stem
		}
	}
	if strings.HasSuffix(w, "ll") && measure(w[:len(w)-1]) > 1 {
		return w[:len(w)-1]
	}
	return w
}
