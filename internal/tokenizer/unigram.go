package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"fulcrum/internal/jsonwords"
)

// unigram is the model of SentencePiece's unigram language model (Kudo 2018, arXiv:1804.10959): every
// piece has a log-probability, and a word becomes the pieces of the highest sum.
type unigram struct {
	pieces  []piece        // by id
	ids     map[string]int // of the pieces; the later of equals
	longest int            // bytes of the longest piece
	unk     int32
	unknown float64 // score of a character that no piece covers
}

// unknownPenalty is how far below every piece an unknown character lies.
const unknownPenalty = 10

// piece is one entry of model.vocab: [text, score].
type piece struct {
	text  string
	score float64
}

func (p *piece) UnmarshalJSON(raw []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(raw, &pair); err != nil || len(pair) != 2 ||
		json.Unmarshal(pair[0], &p.text) != nil || json.Unmarshal(pair[1], &p.score) != nil || string(pair[0]) == "null" ||
		string(pair[1]) == "null" {
		return fmt.Errorf("%s: want [piece, score]", raw[:min(len(raw), 60)])
	}
	return nil
}

// parseUnigram reads tokenizer.json with a model of type Unigram.
func parseUnigram(f file) (*Tokenizer, error) {
	var m struct {
		Unk          *int `json:"unk_id"`
		Vocab        json.RawMessage
		ByteFallback bool `json:"byte_fallback"`
	}
	if err := jsonwords.Unmarshal(f.Model, &m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	var vocab []piece
	if err := jsonwords.Unmarshal(m.Vocab, &vocab); err != nil {
		return nil, fmt.Errorf("model.vocab: want a list of [piece, score]: %w", err)
	}
	var r rules
	var err error
	if r.normalize, err = readNormalizers(f.Normalizer); err != nil {
		return nil, err
	}
	if r.words, err = readWords(f.PreTokenizer, f.Decoder); err != nil {
		return nil, err
	}
	if err := r.words.keepsStart(f.Normalizer); err != nil {
		return nil, err
	}
	switch {
	case m.ByteFallback:
		return nil, unsupported("model.byte_fallback", "true", "false")
	case m.Unk == nil:
		return nil, unsupported("model.unk_id", "null", "an id: unknown characters need one")
	}
	t, err := newUnigram(vocab, *m.Unk, f.AddedTokens, r)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	t.spelled = f
	return t, nil
}

func newUnigram(vocab []piece, unk int, added []Added, r rules) (*Tokenizer, error) {
	if unk < 0 || unk >= len(vocab) {
		return nil, fmt.Errorf("unk_id %d outside of the vocabulary (0 to %d)", unk, len(vocab)-1)
	}
	if len(vocab) > maxID {
		return nil, fmt.Errorf("%d pieces, want at most %d", len(vocab), maxID)
	}
	u := &unigram{ids: make(map[string]int, len(vocab)), pieces: vocab, unk: int32(unk), unknown: math.Inf(1)}
	for id, p := range vocab {
		if math.IsInf(p.score, 0) || math.IsNaN(p.score) {
			return nil, fmt.Errorf("piece %q: score %v, want a finite number", p.text, p.score)
		}
		u.ids[p.text] = id
		u.longest = max(u.longest, len(p.text))
		u.unknown = min(u.unknown, p.score-unknownPenalty)
	}
	t, err := vocabulary(u.ids, added, r)
	if err != nil {
		return nil, err
	}
	t.tokens = slices.Concat(t.tokens, make([]entry, max(0, len(vocab)-len(t.tokens)))) // a repeated piece may be the last
	for id, p := range vocab {
		t.tokens[id] = entry{token: p.text, bytes: p.text}
	}
	t.unigram = u
	return t, t.add(added)
}

// step is the best way to a place of a word.
type step struct {
	score float64
	from  int32 // where its last token begins; -1: no way leads here
	id    int32
}

// append adds the ids of a word: the path of pieces with the highest sum of scores, found by dynamic
// programming over the places between characters (Viterbi). Of equal sums the earliest found stays. Where
// no piece is just the next character, that character may be passed as unknown; unknown neighbours are
// one token.
func (u *unigram) append(ids []int32, word string, s *scratch) []int32 {
	if word == "" {
		return ids
	}
	steps := slices.Grow(s.steps[:0], len(word)+1)[:len(word)+1]
	s.steps = steps
	for i := range steps {
		steps[i] = step{from: -1}
	}
	reach := func(from, to int, id int32, score float64) {
		score += steps[from].score
		if steps[to].from < 0 || score > steps[to].score {
			steps[to] = step{score, int32(from), id}
		}
	}
	for from := 0; from < len(word); {
		_, char := utf8.DecodeRuneInString(word[from:])
		single := false
		for to := from + char; to <= len(word) && to-from <= u.longest; {
			if id, ok := u.ids[word[from:to]]; ok {
				reach(from, to, int32(id), u.pieces[id].score)
				single = single || to == from+char
			}
			if to == len(word) {
				break
			}
			_, n := utf8.DecodeRuneInString(word[to:])
			to += n
		}
		if !single {
			reach(from, from+char, u.unk, u.unknown)
		}
		from += char
	}
	start := len(ids)
	for to := len(word); to > 0; to = int(steps[to].from) {
		if id := steps[to].id; id != u.unk || len(ids) == start || ids[len(ids)-1] != u.unk {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids[start:])
	return ids
}
