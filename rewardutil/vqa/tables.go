package vqa

import (
	"cmp"
	_ "embed"
	"strings"
	"sync"
)

// contraction returns the word that the public contraction table of the VQA evaluation puts for a
// lower-cased one (with an odd entry or two, which are the table's own), or the word itself. Entries with
// capitals are left out: a lower-cased word can never match them.
func contraction(word string) string { return cmp.Or(contractions()[word], word) }

//go:embed contractions.txt
var contractionText string

var contractions = sync.OnceValue(func() map[string]string { return pairs(contractionText) })

var digits = sync.OnceValue(func() map[string]string {
	return pairs("none 0, zero 0, one 1, two 2, three 3, four 4, five 5, six 6, seven 7, eight 8, nine 9, ten 10")
})

// pairs reads a table: "from to, from to".
func pairs(text string) map[string]string {
	table := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		words := strings.Fields(pair)
		table[words[0]] = words[1]
	}
	return table
}
