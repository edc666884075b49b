package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"fulcrum/internal/jsonwords"
)

// Llama 2 and Mistral have BPE of characters, as SentencePiece trains it: a space is the mark U+2581, and a character that the
// vocabulary lacks becomes its bytes, tokens of their own ("<0xE2>").

const wordMark = "\u2581"

// readCharacters reads the rules of a model with byte_fallback. The mark before a text is the normalizer's (older files) or Metaspace's.
func readCharacters(f file) (r rules, err error) {
	r.characters = true
	if r.normalize, err = readNormalizers(f.Normalizer); err != nil {
		return r, err
	}
	switch kind := typeOf(f.PreTokenizer); kind {
	case "":
	case "Metaspace":
		if err = r.words.readMetaspace(f.PreTokenizer); err != nil {
			return r, fmt.Errorf("pre_tokenizer: %w", err)
		}
		if err = r.words.keepsStart(f.Normalizer); err != nil {
			return r, err
		}
	default:
		return r, unsupported("pre_tokenizer with byte_fallback", kind, "Metaspace", "none")
	}
	r.stripSpace, err = readCharacterDecoder(f.Decoder)
	return r, err
}

// readCharacterDecoder reads the one decoder that such models have, and whether it removes a space at the start.
func readCharacterDecoder(raw json.RawMessage) (stripSpace bool, err error) {
	parts, err := sequence(raw, "decoders")
	if err != nil {
		return false, fmt.Errorf("decoder: %w", err)
	}
	var names []string
	for _, raw := range parts {
		var d struct {
			Type        string
			Pattern     struct{ String string }
			Content     string
			Start, Stop int
		}
		if err := jsonwords.Unmarshal(raw, &d); err != nil {
			return false, fmt.Errorf("decoder: %w", err)
		}
		switch d.Type {
		case "Replace":
			d.Type = fmt.Sprintf("Replace %q by %q", d.Pattern.String, d.Content)
		case "Strip":
			d.Type = fmt.Sprintf("Strip %q %d %d", d.Content, d.Start, d.Stop)
		}
		names = append(names, d.Type)
	}
	const want = `Replace "▁" by " ", ByteFallback, Fuse`
	const strip = `, Strip " " 1 0`
	switch got := strings.Join(names, ", "); got {
	case want, want + strip:
		return got != want, nil
	default:
		return false, unsupported("decoder with byte_fallback", got, want+strip, want)
	}
}

// appendCharacters appends the ids of the characters of text.
func (t *Tokenizer) appendCharacters(ids []int32, text string) []int32 {
	for text != "" {
		_, n := utf8.DecodeRuneInString(text)
		if id, ok := t.inModel(text[:n]); ok {
			ids = append(ids, id)
		} else {
			for i := range n {
				ids = append(ids, t.byteID[text[i]])
			}
		}
		text = text[n:]
	}
	return ids
}

// wordsApart reports whether no merge joins a mark to a character before it. Then words merge one by one as they do in one text, and
// the cache knows them.
func (t *Tokenizer) wordsApart() bool {
	if _, ok := t.inModel(wordMark); !ok || t.rules.ignoreMerges {
		return false
	}
	return !slices.ContainsFunc(t.pairs, func(p [2]string) bool {
		return strings.Contains(strings.TrimLeft(p[0]+p[1], wordMark), wordMark)
	})
}

// cutBeforeMarks calls word for the parts of text that begin with marks, but for the first, which may not.
func cutBeforeMarks(text string, word func(string)) {
	for text != "" {
		inside := strings.TrimLeft(text, wordMark)
		n := strings.Index(inside, wordMark)
		if n < 0 {
			n = len(inside)
		}
		n += len(text) - len(inside)
		word(text[:n])
		text = text[n:]
	}
}

// characterText is what tokens of such a model stand for. Bytes in a row are text only together: where they are no UTF-8, each is U+FFFD.
type characterText struct {
	strings.Builder
	run []byte
}

func (c *characterText) add(token string) {
	if len(token) == len("<0xE2>") && strings.HasPrefix(token, "<0x") && token[5] == '>' {
		if b, err := strconv.ParseUint(token[3:5], 16, 8); err == nil {
			c.run = append(c.run, byte(b))
			return
		}
	}
	c.flush()
	c.WriteString(strings.ReplaceAll(token, wordMark, " "))
}

func (c *characterText) flush() {
	if utf8.Valid(c.run) {
		c.Write(c.run)
	} else {
		c.WriteString(strings.Repeat(string(utf8.RuneError), len(c.run)))
	}
	c.run = c.run[:0]
}
