package tokenizer

import (
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// nfc brings text to Unicode's normalization form C. golang.org/x/text puts a U+034F into runs of more
// than 30 combining marks (the Stream-Safe Text Format), which the standard's NFC does not have and
// the tokenizers do not know: such text takes the slow way.
func nfc(text string) string {
	if norm.NFC.IsNormalString(text) {
		return text
	}
	out := norm.NFC.String(text)
	const joiner = "\u034f"
	if strings.Count(out, joiner) == strings.Count(text, joiner) {
		return out
	}
	return compose(decompose(text))
}

type mark struct {
	r     rune
	class uint8 // canonical combining class; 0 = starter
}

// decompose returns the canonical decomposition with the marks of each run in canonical order.
func decompose(text string) []mark {
	var out []mark
	for _, r := range text {
		for _, d := range norm.NFD.String(string(r)) {
			out = append(out, mark{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	for from := 0; from < len(out); {
		to := from + 1
		for to < len(out) && out[to].class != 0 {
			to++
		}
		if out[from].class == 0 {
			from++
		}
		slices.SortStableFunc(out[from:to], func(a, b mark) int { return int(a.class) - int(b.class) })
		from = to
	}
	return out
}

// compose joins every starter with the later marks that it composes with and that nothing blocks.
func compose(marks []mark) string {
	out := make([]mark, 0, len(marks))
	starter := -1
	for _, m := range marks {
		if starter >= 0 {
			last := out[len(out)-1]
			adjacent := len(out)-1 == starter
			if adjacent || last.class != 0 && last.class < m.class {
				pair := []rune(norm.NFC.String(string([]rune{out[starter].r, m.r})))
				if len(pair) == 1 {
					out[starter].r = pair[0]
					continue
				}
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	var text strings.Builder
	for _, m := range out {
		text.WriteRune(m.r)
	}
	return text.String()
}
