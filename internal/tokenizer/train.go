package tokenizer

// Train learns a byte-level BPE vocabulary of at most size tokens (256 bytes at least) from corpus, with
// the rules of Qwen2: again and again the most frequent pair of neighbours becomes a token; of equally
// frequent pairs the one with the lowest ids. It stops early when no pair occurs twice. The result
// depends on the counts alone, so on no order of the corpus; it is written in GPT-2's byte alphabet, as
// New takes it. Meant for the small vocabularies of built-in models. Source: Sennrich et al. 2016,
// arXiv:1508.07909, algorithm 1, on bytes.
func Train(corpus []string, size int) (vocab map[string]int, merges [][2]string) {
	letters, order := alphabet()
	tokens := make([]string, 0, max(size, 256))
	ids := map[string]int32{}
	var byteID [256]int32
	for id, b := range order {
		tokens = append(tokens, string(letters[b]))
		ids[tokens[id]], byteID[b] = int32(id), int32(id)
	}
	words := countWords(corpus, byteID)

	counts := map[uint64]int{}           // pair → occurrences
	where := map[uint64]map[*word]bool{} // pair → words that have, or had, it
	change := func(w *word, sign int) {
		for i := range len(w.ids) - 1 {
			pair := join(w.ids[i], w.ids[i+1])
			counts[pair] += sign * w.count
			if where[pair] == nil {
				where[pair] = map[*word]bool{}
			}
			where[pair][w] = true
		}
	}
	for _, w := range words {
		change(w, +1)
	}
	for len(tokens) < size {
		best, most := uint64(0), 1
		for pair, n := range counts {
			if n > most || n == most && n > 1 && pair < best {
				best, most = pair, n
			}
		}
		if most < 2 {
			break
		}
		left, right := int32(best>>32), int32(uint32(best))
		merges = append(merges, [2]string{tokens[left], tokens[right]})
		token := tokens[left] + tokens[right]
		id, known := ids[token] // a+bc and ab+c make one token
		if !known {
			id = int32(len(tokens))
			tokens, ids[token] = append(tokens, token), id
		}
		for w := range where[best] {
			change(w, -1)
			w.merge(left, right, id)
			change(w, +1)
		}
		delete(counts, best)
		delete(where, best)
	}
	vocab = make(map[string]int, len(tokens))
	for id, token := range tokens {
		vocab[token] = id
	}
	return vocab, merges
}

// word is one distinct piece of the corpus and how often it occurs.
type word struct {
	ids   []int32
	count int
}

func countWords(corpus []string, byteID [256]int32) []*word {
	found := map[string]*word{}
	var words []*word
	for _, text := range corpus {
		text = nfc(validUTF8(text))
		for len(text) > 0 {
			n := Qwen2.next(text)
			w := found[text[:n]]
			if w == nil {
				w = &word{ids: make([]int32, n)}
				for i := range n {
					w.ids[i] = byteID[text[i]]
				}
				found[text[:n]] = w
				words = append(words, w)
			}
			w.count++
			text = text[n:]
		}
	}
	return words
}

// merge replaces every left, right by id, from the left.
func (w *word) merge(left, right, id int32) {
	out := w.ids[:0]
	for i := 0; i < len(w.ids); i++ {
		if w.ids[i] == left && i+1 < len(w.ids) && w.ids[i+1] == right {
			out = append(out, id)
			i++
		} else {
			out = append(out, w.ids[i])
		}
	}
	w.ids = out
}
