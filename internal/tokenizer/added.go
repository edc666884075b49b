package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// matcher finds added tokens in a text: the leftmost, and of several at one place the longest.
type matcher struct {
	tokens []Added
	nodes  []node
	first  [256]bool // bytes that begin a token
}

// node is one state of a trie of bytes.
type node struct {
	next  map[byte]int32
	token int32 // index of the token that ends here, plus one
}

func newMatcher(tokens []Added) *matcher {
	m := &matcher{tokens: tokens, nodes: []node{{}}}
	for i, a := range tokens {
		if a.Content == "" {
			continue
		}
		m.first[a.Content[0]] = true
		at := int32(0)
		for k := range len(a.Content) {
			if m.nodes[at].next == nil {
				m.nodes[at].next = map[byte]int32{}
			}
			to, ok := m.nodes[at].next[a.Content[k]]
			if !ok {
				to = int32(len(m.nodes))
				m.nodes = append(m.nodes, node{})
				m.nodes[at].next[a.Content[k]] = to
			}
			at = to
		}
		m.nodes[at].token = int32(i) + 1
	}
	return m
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
		if !m.first[text[at]] {
			at++
			continue
		}
		token, ok := m.longest(text[at:])
		end := at + len(token.Content)
		if !ok || token.SingleWord && insideWord(text, at, end) {
			at++
			continue
		}
		before := text[from:at]
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

func (m *matcher) longest(text string) (Added, bool) {
	best, at := int32(0), int32(0)
	for k := range len(text) {
		to, ok := m.nodes[at].next[text[k]]
		if !ok {
			break
		}
		at = to
		if m.nodes[at].token > 0 {
			best = m.nodes[at].token
		}
	}
	if best == 0 {
		return Added{}, false
	}
	return m.tokens[best-1], true
}

func insideWord(text string, from, end int) bool {
	before, n := utf8.DecodeLastRuneInString(text[:from])
	after, k := utf8.DecodeRuneInString(text[end:])
	return n > 0 && isWord(before) || k > 0 && isWord(after)
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

// Cut returns the parts of text between the given tokens, without them.
func Cut(text string, tokens []string) []string {
	added := make([]Added, len(tokens))
	for i, token := range tokens {
		added[i].Content = token
	}
	var parts []string
	newMatcher(added).cut(text, &scratch{}, func(part string) { parts = append(parts, part) })
	return parts
}
