package tokenizer

import (
	"fmt"
	"slices"
)

// Layout names the special tokens of an encoder-decoder, their ids and their places around a text.
type Layout int

const (
	// T5 has <pad> 0, </s> 1 and <unk> 2, and ends a text with </s>.
	T5 Layout = iota
	// BART has <s> 0, <pad> 1, </s> 2, <unk> 3 and <mask> last, and writes <s> … </s>.
	BART
)

// Scratch learns the vocabulary of a model with random weights from corpus: at most size tokens, special
// ones included. It is byte-level BPE for T5 too, where published models have a Unigram: any text comes
// back from its tokens, nothing is unknown, and counting integers gives the same vocabulary on every
// machine, which the floating-point EM of Unigram training does not. Save writes a tokenizer.json that
// HuggingFace reads as it stands.
func Scratch(corpus []string, size int, layout Layout) (*Tokenizer, error) {
	front := []string{"<pad>", "</s>", "<unk>"}
	var back []string
	if layout == BART {
		front, back = []string{"<s>", "<pad>", "</s>", "<unk>"}, []string{"<mask>"}
	}
	special := len(front) + len(back)
	if size < 256+special {
		return nil, fmt.Errorf("a vocabulary of %d tokens: want at least %d, one for each byte and %d special ones", size, 256+special,
			special)
	}
	var parts []string // what stands between special tokens is all that merges ever see
	for _, text := range corpus {
		parts = append(parts, Cut(text, slices.Concat(front, back))...)
	}
	vocab, merges := Train(parts, size-special)
	for token := range vocab {
		vocab[token] += len(front)
	}
	var added []Added
	for _, token := range slices.Concat(front, back) {
		id := len(added)
		if id >= len(front) {
			id = len(vocab)
		}
		vocab[token] = id // HuggingFace numbers added tokens anew unless the model has them
		added = append(added, Added{ID: id, Content: token, Special: true, LStrip: token == "<mask>"})
	}
	t, err := New(vocab, merges, added)
	if err != nil {
		return nil, err
	}
	t.wrap = template{after: []int64{int64(vocab["</s>"])}}
	if layout == BART {
		t.wrap.before = []int64{int64(vocab["<s>"])}
	}
	return t, nil
}
