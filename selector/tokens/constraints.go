package tokens

import "slices"

// Constraints forbid next tokens, as transformers' logits processors of these names do. The zero value forbids nothing.
type Constraints struct {
	MinP          float64   `json:"min_p"`                 // of sampling: tokens less probable than this share of the likeliest one never come
	Suppress      []int64   `json:"suppress_tokens"`       // never come
	BeginSuppress []int64   `json:"begin_suppress_tokens"` // never come first, behind a forced token
	MinLength     int       `json:"min_length"`            // no end before so many tokens, those before the completion included
	MinNewTokens  int       `json:"min_new_tokens"`        // no end before so many tokens of the completion
	NoRepeat      int       `json:"no_repeat_ngram_size"`  // no sequence of this length comes twice, in prompt and completion; 0 = off
	BadWords      [][]int64 `json:"bad_words_ids"`         // lists of tokens that never come in this order
}

// any reports whether a constraint is set.
func (c *Constraints) any() bool {
	return c.MinP > 0 || c.MinLength > 0 || c.MinNewTokens > 0 || c.NoRepeat > 0 ||
		len(c.Suppress)+len(c.BeginSuppress)+len(c.BadWords) > 0
}

// banned lists the tokens of a vocabulary that may not follow a sequence. Each rule is that of transformers' processor of that name.
func (o *GenerateOptions) banned(s *Sequence, vocabulary int) []int64 {
	if !o.Constraints.any() {
		return o.Suppressed
	}
	out := slices.Concat(o.Suppressed, o.Suppress)
	if begin := min(len(o.First), 1); len(s.IDs) == begin {
		out = append(out, o.BeginSuppress...)
	}
	all := slices.Concat(s.Before, s.IDs)
	if len(all) < o.MinLength || len(s.IDs) < o.MinNewTokens {
		out = append(out, o.EOS...)
	}
	if n := o.NoRepeat; n > 0 && len(all)+1 >= n {
		end := all[len(all)+1-n:]
		for i := 0; i+n <= len(all); i++ {
			if slices.Equal(all[i:i+n-1], end) {
				out = append(out, all[i+n-1])
			}
		}
	}
	for _, word := range o.BadWords {
		n := len(word) - 1
		ends := n == 0 || n < len(all) && slices.Equal(all[len(all)-n:], word[:n]) // as in transformers, a word as long as the text is ignored
		if ends && !(n == 0 && slices.Contains(o.EOS, word[0])) {
			out = append(out, word[n])
		}
	}
	return slices.DeleteFunc(out, func(id int64) bool { return id < 0 || id >= int64(vocabulary) })
}
