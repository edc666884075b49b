package workload

import (
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/tokenizer"
)

// The last added special tokens of a tokenizer need no rows of a model; tokens of texts, and those before them, do.
func TestNeeded(t *testing.T) {
	for name, want := range map[string]int{"tiny_bart": 520, "tiny_t5": 352} {
		words, err := tokenizer.Open(golden.Shared(t, "seq2seq", name))
		if err != nil {
			t.Fatal(err)
		}
		if n := needed(words); n != want {
			t.Errorf("%s: %d of %d tokens, want %d", name, n, words.Size(), want)
		}
	}
}
