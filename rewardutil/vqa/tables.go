package vqa

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed contractions.txt
var contractionText string

// contractions is the public contraction table of the VQA evaluation, by the lower-cased word (with an odd entry or two, which are
// the table's own). Entries with capitals are left out: a lower-cased word can never match them.
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
