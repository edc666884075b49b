package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"fulcrum/internal/jsonwords"
)

// words cuts text as SentencePiece does: every space becomes a visible mark (U+2581), and a word begins
// with its mark.
type words struct {
	whiteSpace bool   // first cut at white space, which is dropped (WhitespaceSplit)
	mark       string // one code point
	prefix     string // always, first (only at the start of the text) or never: a mark in front of what has none
	split      bool   // cut before every mark; false: one word

	decodePrefix string // the decoder's own prefix
}

// cut calls word for the words of a part of text; atStart says that nothing stands before the part.
func (w words) cut(text string, atStart bool, word func(string)) {
	if !w.whiteSpace {
		w.cutMarks(text, atStart, word)
		return
	}
	for from := 0; from < len(text); {
		rest := strings.TrimLeftFunc(text[from:], unicode.IsSpace)
		from = len(text) - len(rest)
		n := strings.IndexFunc(rest, unicode.IsSpace)
		if n < 0 {
			n = len(rest)
		}
		w.cutMarks(rest[:n], atStart && from == 0, word)
		from += n
	}
}

func (w words) cutMarks(text string, atStart bool, word func(string)) {
	if text == "" {
		return
	}
	if w.mark == "" { // no pre-tokenizer
		word(text)
		return
	}
	text = strings.ReplaceAll(text, " ", w.mark)
	if !strings.HasPrefix(text, w.mark) && (w.prefix == "always" || w.prefix == "first" && atStart) {
		text = w.mark + text
	}
	for w.split {
		n := strings.Index(text[1:], w.mark) // the first byte belongs to this word, mark or not
		if n < 0 {
			break
		}
		word(text[:n+1])
		text = text[n+1:]
	}
	word(text)
}

// text returns what a token stands for: its marks are spaces, but those of the first token, which encoding
// put there.
func (w words) text(token string, first bool) string {
	if first && w.decodePrefix != "never" {
		return strings.ReplaceAll(token, w.mark, "")
	}
	return strings.ReplaceAll(token, w.mark, " ")
}

// metaspace is the entry Metaspace of tokenizer.json, as pre-tokenizer and as decoder.
type metaspace struct {
	Type        string
	Replacement string
	AddPrefix   *bool   `json:"add_prefix_space"` // older files
	Scheme      *string `json:"prepend_scheme"`   // newer ones
	Split       *bool
}

// scheme returns always, first or never.
func (m metaspace) scheme() (string, error) {
	scheme := "always"
	if m.AddPrefix != nil && !*m.AddPrefix {
		scheme = "never"
	}
	if m.Scheme == nil {
		return scheme, nil
	}
	switch *m.Scheme {
	case "always", "first", "never":
	default:
		return "", unsupported("Metaspace prepend_scheme", *m.Scheme, "always", "first", "never")
	}
	if scheme == "never" && *m.Scheme != "never" {
		return "", fmt.Errorf("add_prefix_space false and prepend_scheme %s of Metaspace: want one meaning", *m.Scheme)
	}
	return *m.Scheme, nil
}

// readWords reads the pre-tokenizer and the decoder of a Unigram file: Metaspace, alone or after
// WhitespaceSplit, and Metaspace.
func readWords(pre, decoder json.RawMessage) (words, error) {
	var w words
	parts, err := sequence(pre, "pretokenizers")
	if err != nil {
		return w, fmt.Errorf("pre_tokenizer: %w", err)
	}
	for _, raw := range parts {
		kind := typeOf(raw)
		switch {
		case kind == "WhitespaceSplit" && w.mark == "":
			w.whiteSpace = true
		case kind == "Metaspace" && w.mark == "":
			if err := w.readMetaspace(raw); err != nil {
				return w, fmt.Errorf("pre_tokenizer: %w", err)
			}
		default:
			return w, unsupported("pre_tokenizer", kind, "Metaspace", "WhitespaceSplit then Metaspace")
		}
	}
	if w.mark == "" {
		return w, unsupported("pre_tokenizer", "none", "Metaspace", "WhitespaceSplit then Metaspace")
	}
	if kind := typeOf(decoder); kind != "Metaspace" {
		return w, unsupported("decoder", cmp.Or(kind, "none"), "Metaspace")
	}
	var d words
	if err := d.readMetaspace(decoder); err != nil {
		return w, fmt.Errorf("decoder: %w", err)
	}
	if d.mark != w.mark {
		return w, fmt.Errorf("the pre_tokenizer marks words by %q, the decoder by %q: want the same", w.mark, d.mark)
	}
	w.decodePrefix = d.prefix
	return w, nil
}

func (w *words) readMetaspace(raw json.RawMessage) error {
	var m metaspace
	if err := jsonwords.Unmarshal(raw, &m); err != nil {
		return err
	}
	if utf8.RuneCountInString(m.Replacement) != 1 {
		return fmt.Errorf("replacement %q of Metaspace: want one character", m.Replacement)
	}
	scheme, err := m.scheme()
	if err != nil {
		return err
	}
	w.mark, w.prefix, w.split = m.Replacement, scheme, m.Split == nil || *m.Split
	return nil
}

// keepsStart refuses normalizers that may remove the start of a text: to "first" that is where the text began before them.
func (w words) keepsStart(normalizer json.RawMessage) error {
	parts, err := sequence(normalizer, "normalizers")
	for _, raw := range parts {
		var n struct {
			Left    bool `json:"strip_left"`
			Content string
		}
		if err := jsonwords.Unmarshal(raw, &n); err != nil {
			return err
		}
		kind := typeOf(raw)
		if w.prefix == "first" && (kind == "Strip" && n.Left || kind == "Replace" && n.Content == "") {
			return unsupported("normalizer before Metaspace prepend_scheme first", kind, "one that keeps the start of a text")
		}
	}
	return err
}
