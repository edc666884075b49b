package tokenizer

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"fulcrum/internal/list"
)

// matcher finds added tokens in a text: the leftmost, and of several at one place the longest.
type matcher struct {
	tokens map[string]Added
	any    *regexp.Regexp // of their contents
}

func newMatcher(tokens []Added) (*matcher, error) {
	m := &matcher{tokens: map[string]Added{}}
	var contents []string
	for _, a := range tokens {
		if a.Content != "" {
			m.tokens[a.Content] = a
			contents = append(contents, regexp.QuoteMeta(a.Content))
		}
	}
	var err error
	if m.any, err = regexp.Compile(strings.Join(contents, "|")); err != nil {
		return nil, fmt.Errorf("added tokens: %w", err)
	}
	m.any.Longest()
	return m, nil
}

// cut calls part for the text between the added tokens and appends the ids of those, in order.
func (m *matcher) cut(text string, s *scratch, part func(string)) {
	if len(m.tokens) == 0 {
		if text != "" {
			part(text)
		}
		return
	}
	from := 0
	for at := 0; at < len(text); {
		found := m.any.FindStringIndex(text[at:])
		if found == nil {
			break
		}
		start, end := at+found[0], at+found[1]
		token := m.tokens[text[start:end]]
		if token.SingleWord && insideWord(text, start, end) {
			at = end // none begins within it: so does Hugging Face
			continue
		}
		before := text[from:start]
		if token.LStrip {
			before = strings.TrimRightFunc(before, unicode.IsSpace)
		}
		if token.RStrip {
			end += len(text[end:]) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if before != "" {
			part(before)
		}
		s.ids = append(s.ids, int32(token.ID))
		at, from = end, end
	}
	if from < len(text) {
		part(text[from:])
	}
}

func insideWord(text string, from, end int) bool {
	before, n := utf8.DecodeLastRuneInString(text[:from])
	after, k := utf8.DecodeRuneInString(text[end:])
	return n > 0 && isWord(before) || k > 0 && isWord(after)
}

// isWord reports what \w of Rust's expressions matches: a fraction is no word character, a mark is one.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// Cut returns the parts of text between the given tokens, without them.
func Cut(text string, tokens []string) []string {
	var parts []string
	m, err := newMatcher(list.Map(tokens, func(token string) Added { return Added{Content: token} }))
	if err != nil {
		panic(err) // the tokens are those of a program
	}
	m.cut(text, &scratch{}, func(part string) { parts = append(parts, part) })
	return parts
}
