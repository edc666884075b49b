// Package tokenizer turns text into token ids and back, as the tokenizers of HuggingFace do: byte-level BPE with the rules of Qwen2
// (to Qwen3), GPT-2 (BART, SmolLM2), Llama 3 (SmolLM3) and CLIP, BPE of characters (Llama 2, Mistral) and the Unigram model of
// SentencePiece (T5).
//
//	t, err := tokenizer.Open("Qwen2.5-VL-3B-Instruct")
//	ids := t.Encode("Hello world")              // the text alone
//	ids = t.EncodeSpecial("Hello world")        // with what the model expects around it: … </s>
//	text := t.Decode(ids, false)
//
// Encoding takes four steps: cut the text at the added tokens (<|im_start|> and the like), normalise the
// parts (normalize.go, charsmap.go), cut those into pieces by the model's rule (split.go, metaspace.go),
// and find the tokens of each piece: by merging its bytes or characters (bpe.go, characters.go) or as the likeliest sequence
// (unigram.go). The package knows nothing of chats or models.
package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"fulcrum/internal/list"
)

// Added is a token that is matched in the text as it stands, before anything else.
type Added struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no letter, digit or underscore touches it
	LStrip     bool   `json:"lstrip"`      // swallows the white space before it
	RStrip     bool   `json:"rstrip"`      // swallows the white space after it
	Normalized bool   `json:"normalized"`  // matched in the normalised text
	Special    bool   `json:"special"`     // left out by Decode(ids, true)
}

// Tokenizer is a vocabulary with its rules. It is safe for concurrent use.
type Tokenizer struct {
	rules   rules
	wrap    template
	unigram *unigram // nil: BPE
	bpe     merges
	pairs   [][2]string // the merges as given, by rank
	ids     map[string]int
	tokens  []entry // by id; a hole is a zero entry
	byteID  [256]int32
	endID   [256]int32 // of a byte that ends a piece; CLIP's vocabulary has tokens of its own for it
	apart   bool       // BPE of characters: words may be merged one by one
	raw     *matcher   // added tokens that are found in the text as it stands
	normal  *matcher   // added tokens that are found in the normalised text
	config  []byte     // tokenizer_config.json of the folder, kept for Save
	spelled file       // what Save writes of tokenizer.json as it was read; of BPE all but the model
	pool    sync.Pool
}

// entry is one token: as the vocabulary writes it, and what Decode reads: the bytes that it stands for, or without byte-level BPE a text
// that still has its marks.
type entry struct {
	token, bytes string
	added        *Added
	hidden       bool // Decode(ids, true) leaves it out
	inModel      bool // the model's vocabulary has it, as an added token or not
}

// rules say how text becomes pieces.
type rules struct {
	normalize    []normalizer // in order
	words        words        // Unigram and BPE of characters: how text is cut into words
	characters   bool         // BPE of characters, not of bytes
	stripSpace   bool         // BPE of characters: Decode removes a space at the start
	digits       bool         // BPE: every digit is a piece of its own; split cuts what is between them
	split        Split        // BPE: how it is cut into pieces
	prefixSpace  bool         // BPE: a piece of text gets a leading space when it has none
	ignoreMerges bool         // BPE: a piece that is a token of its own is not merged
	suffix       string       // BPE: the last token of a piece ends with it
	lossy        bool         // BPE: a byte that the vocabulary lacks is left out
	unk          *string      // BPE: kept for Save, as is fuseUnk: every character is bytes that are known
	fuseUnk      bool
	cleanUp      bool // Decode removes the spaces before punctuation
}

// New returns a tokenizer with the rules of Qwen2. vocab and merges are written in GPT-2's byte
// alphabet; every one of the 256 bytes and every result of a merge must be in vocab, and no two tokens
// may share an id.
func New(vocab map[string]int, merges [][2]string, added []Added) (*Tokenizer, error) {
	return buildAs(qwen2(), vocab, merges, added)
}

// maxID bounds the ids, so that a damaged file does not ask for a table of 2^62 tokens.
const maxID = 1 << 24

// vocabulary returns a tokenizer with room for all ids and nothing in it yet.
func vocabulary(vocab map[string]int, added []Added, r rules) (*Tokenizer, error) {
	t := &Tokenizer{rules: r, ids: map[string]int{}}
	maps.Copy(t.ids, vocab)
	size := 0
	for token, id := range vocab {
		if id < 0 || id >= maxID {
			return nil, fmt.Errorf("token %q: id %d, want 0 to %d", token, id, maxID-1)
		}
		size = max(size, id+1)
	}
	for _, a := range added {
		if a.ID < 0 || a.ID >= maxID {
			return nil, fmt.Errorf("added token %q: id %d, want 0 to %d", a.Content, a.ID, maxID-1)
		}
		size = max(size, a.ID+1)
	}
	t.tokens = make([]entry, size)
	t.pool.New = func() any { return &scratch{cache: map[string][2]int32{}} }
	return t, nil
}

// build returns a BPE tokenizer.
func build(vocab map[string]int, pairs [][2]string, added []Added, r rules) (*Tokenizer, error) {
	t, err := vocabulary(vocab, added, r)
	if err != nil {
		return nil, err
	}
	t.pairs, t.bpe = pairs, make(merges, len(pairs))
	for token, id := range vocab {
		if other := t.tokens[id].token; other != "" {
			return nil, fmt.Errorf("tokens %q and %q share the id %d", min(token, other), max(token, other), id)
		}
		word, last := strings.CutSuffix(token, t.rules.suffix)
		bytes := t.unletter(word)
		if t.rules.suffix != "" && last {
			bytes += " "
		}
		t.tokens[id] = entry{token: token, bytes: bytes, inModel: true}
	}
	for b, letter := range letters {
		name := string(letter)
		if r.characters {
			name = fmt.Sprintf("<0x%02X>", b)
		}
		if t.byteID[b], err = t.byteToken(b, name); err == nil {
			t.endID[b], err = t.byteToken(b, name+r.suffix)
		}
		if err != nil {
			return nil, err
		}
	}
	for rank, p := range pairs {
		var ids [3]int32 // of the left token, the right one, and what they become
		for i, token := range []string{p[0], p[1], p[0] + p[1]} {
			id, ok := t.ids[token]
			if !ok {
				return nil, fmt.Errorf("merge %d (%q + %q): the vocabulary lacks %q", rank+1, p[0], p[1], token)
			}
			ids[i] = int32(id)
		}
		t.bpe[join(ids[0], ids[1])] = merge{rank: int32(rank), id: ids[2]} // of equals the last counts
	}
	t.apart = r.characters && t.wordsApart()
	return t, t.add(added)
}

// missing is the id of a byte that the vocabulary lacks.
const missing = -1

// byteToken returns the id of the token that stands for one byte.
func (t *Tokenizer) byteToken(b int, token string) (int32, error) {
	id, ok := t.ids[token]
	switch {
	case ok:
		return int32(id), nil
	case t.rules.lossy:
		return missing, nil
	}
	kind := "byte-level BPE"
	if t.rules.characters {
		kind = "BPE with byte_fallback"
	}
	return 0, fmt.Errorf("the vocabulary lacks the byte 0x%02X, which it writes %q: this is no %s", b, token, kind)
}

// add enters the added tokens; one that the vocabulary has too must have its id.
func (t *Tokenizer) add(added []Added) error {
	var raw, normal []Added
	for _, a := range added {
		if a.Content == "" {
			return fmt.Errorf("added token %d is empty", a.ID)
		}
		if id, ok := t.ids[a.Content]; ok && id != a.ID {
			return fmt.Errorf("added token %q has the ids %d and %d", a.Content, id, a.ID)
		}
		if e := t.tokens[a.ID]; e.token != "" && e.token != a.Content {
			return fmt.Errorf("tokens %q and %q share the id %d", e.token, a.Content, a.ID)
		}
		found := a
		if a.Normalized {
			found.Content = t.normalize(a.Content)
			normal = append(normal, found)
		} else {
			raw = append(raw, found)
		}
		t.tokens[a.ID] = entry{token: a.Content, bytes: t.unletter(found.Content), added: &a, inModel: t.tokens[a.ID].inModel,
			hidden: a.Special && found.Content == a.Content} // as the tokenizers library, which looks for what it found
		t.ids[a.Content] = a.ID
	}
	var err error
	if t.raw, err = newMatcher(raw); err == nil {
		t.normal, err = newMatcher(normal)
	}
	return err
}

// Encode returns the ids of text. Bytes that are not UTF-8 count as U+FFFD. Nothing is put before or
// after the text.
func (t *Tokenizer) Encode(text string) []int64 {
	s := t.pool.Get().(*scratch)
	defer t.pool.Put(s)
	s.ids = s.ids[:0]
	t.raw.cut(validUTF8(text), s, func(part string) {
		t.normal.cut(t.normalize(part), s, func(part string) { t.encodePart(part, s) })
	})
	return list.Map(s.ids, func(id int32) int64 { return int64(id) })
}

// EncodeSpecial returns the ids of text with the special tokens that the model expects before and after
// it: "… </s>" for T5, "<s> … </s>" for BART, none for Qwen.
func (t *Tokenizer) EncodeSpecial(text string) []int64 {
	return slices.Concat(t.wrap.before, t.Encode(text), t.wrap.after)
}

// Special returns the ids that EncodeSpecial puts before and after a text.
func (t *Tokenizer) Special() (before, after []int64) {
	return slices.Clone(t.wrap.before), slices.Clone(t.wrap.after)
}

func (t *Tokenizer) normalize(text string) string {
	for _, n := range t.rules.normalize {
		text = n(text)
	}
	return text
}

// encodePart appends the ids of text between added tokens.
func (t *Tokenizer) encodePart(text string, s *scratch) {
	if t.unigram != nil || t.rules.characters {
		atStart := len(s.ids) == 0
		t.rules.words.cut(text, atStart, func(word string) {
			if t.apart {
				cutBeforeMarks(word, func(word string) { t.encodePiece(word, s) })
				return
			}
			t.encodePiece(word, s)
		})
		return
	}
	if t.rules.prefixSpace && text != "" && text[0] != ' ' {
		text = " " + text
	}
	for t.rules.digits {
		n := strings.IndexFunc(text, unicode.IsNumber)
		if n < 0 {
			break
		}
		_, digit := utf8.DecodeRuneInString(text[n:])
		t.encodeSplit(text[:n], s)
		t.encodePiece(text[n:n+digit], s)
		text = text[n+digit:]
	}
	t.encodeSplit(text, s)
}

// encodeSplit appends the ids of text that the model's rule cuts.
func (t *Tokenizer) encodeSplit(text string, s *scratch) {
	for len(text) > 0 {
		n := t.rules.split.next(text)
		if t.rules.split != CLIP || !beginsWhite(text) { // which keeps no white space between pieces
			t.encodePiece(text[:n], s)
		}
		text = text[n:]
	}
}

// Limits of a cache of pieces: longer pieces hardly repeat, and a full cache starts again.
const (
	cachedPiece = 48      // bytes
	cachedIDs   = 1 << 18 // 1 MiB of ids
)

func (t *Tokenizer) encodePiece(piece string, s *scratch) {
	if at, ok := s.cache[piece]; ok {
		s.ids = append(s.ids, s.kept[at[0]:at[1]]...)
		return
	}
	from := len(s.ids)
	if t.unigram != nil {
		s.ids = t.unigram.append(s.ids, piece, s)
	} else {
		s.ids = t.appendMerged(s.ids, piece, s)
	}
	if len(piece) > cachedPiece {
		return
	}
	if len(s.kept) > cachedIDs {
		clear(s.cache)
		s.kept = s.kept[:0]
	}
	start := len(s.kept)
	s.kept = append(s.kept, s.ids[from:]...)
	s.cache[strings.Clone(piece)] = [2]int32{int32(start), int32(len(s.kept))}
}

// appendMerged appends the ids of a piece, which holds a byte at least.
func (t *Tokenizer) appendMerged(ids []int32, piece string, s *scratch) []int32 {
	if t.rules.ignoreMerges {
		if id, ok := t.whole(piece); ok {
			return append(ids, id)
		}
	}
	from := len(ids)
	if t.rules.characters {
		ids = t.appendCharacters(ids, piece)
	} else {
		for i := range len(piece) {
			id := t.byteID[piece[i]]
			if i == len(piece)-1 {
				id = t.endID[piece[i]]
			}
			if id != missing {
				ids = append(ids, id)
			}
		}
	}
	return append(ids[:from], t.bpe.bpe(ids[from:], s)...)
}

// whole returns the token that a piece is in the model's vocabulary, if any.
func (t *Tokenizer) whole(piece string) (int32, bool) {
	if t.rules.characters {
		return t.inModel(piece)
	}
	var token strings.Builder
	for i := range len(piece) {
		token.WriteRune(letters[piece[i]])
	}
	return t.inModel(token.String())
}

// inModel returns the id of a token of the model's vocabulary, which may lack added tokens.
func (t *Tokenizer) inModel(token string) (int32, bool) {
	id, ok := t.ids[token]
	return int32(id), ok && t.tokens[id].inModel
}

// Decode returns the text of ids; skipSpecial leaves the special tokens out. Bytes that are not UTF-8
// become U+FFFD, one for each maximal ill-formed part. An id without a token (a model's vocabulary may
// be padded) stands for nothing.
func (t *Tokenizer) Decode(ids []int64, skipSpecial bool) string {
	var out characterText
	first := true
	for _, id := range ids {
		if id < 0 || id >= int64(len(t.tokens)) {
			continue
		}
		e := &t.tokens[id]
		if skipSpecial && e.hidden {
			continue
		}
		switch {
		case t.unigram != nil:
			out.WriteString(t.rules.words.text(e.bytes, first))
		case t.rules.characters:
			out.add(e.bytes)
		default:
			out.WriteString(e.bytes)
		}
		first = first && e.token == ""
	}
	out.flush()
	text := validUTF8(out.String())
	if t.rules.suffix != "" {
		text = strings.TrimSpace(text)
	}
	if t.rules.stripSpace {
		text = strings.TrimPrefix(text, " ")
	}
	if t.rules.cleanUp {
		text = cleanUp(text)
	}
	return text
}

// cleanUp removes spaces before punctuation and contractions: clean_up_tokenization_spaces of old
// GPT-2 and BART folders.
func cleanUp(text string) string {
	for _, s := range []string{".", "?", "!", ","} {
		text = strings.ReplaceAll(text, " "+s, s)
	}
	text = strings.ReplaceAll(text, " ' ", "'")
	for _, s := range []string{"n't", "'m", "'s", "'ve", "'re"} {
		text = strings.ReplaceAll(text, " "+s, s)
	}
	return text
}

// ID returns the id of a token as the vocabulary writes it ("Ġthe", "<|im_end|>").
func (t *Tokenizer) ID(token string) (int64, bool) {
	id, ok := t.ids[token]
	return int64(id), ok
}

// Knows reports whether the vocabulary has a token.
func (t *Tokenizer) Knows(token string) bool {
	_, ok := t.ids[token]
	return ok
}

// Token returns the token of an id as the vocabulary writes it, or "".
func (t *Tokenizer) Token(id int64) string {
	if id < 0 || id >= int64(len(t.tokens)) {
		return ""
	}
	return t.tokens[id].token
}

// Size returns the largest id plus one: the rows that a model's embedding needs at least.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// Added returns the added tokens by id.
func (t *Tokenizer) Added() []Added {
	var added []Added
	for _, e := range t.tokens {
		if e.added != nil {
			added = append(added, *e.added)
		}
	}
	return added
}
