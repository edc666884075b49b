package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// charsMap is SentencePiece's normaliser (nmt_nfkc in T5): a table of replacements, compiled into a
// double-array trie of bytes (Aoe 1989; the layout of the Darts-clone library). A unit of the trie holds
// the byte that leads to it, whether a value hangs below it, and the offset to its children.
type charsMap struct {
	trie  []uint32
	texts string // replacements, each ended by a NUL; a value of the trie is a byte offset into them
}

// newCharsMap reads precompiled_charsmap: base64 of the trie's size in bytes (uint32, little endian), the
// trie, the texts.
func newCharsMap(blob string) (*charsMap, error) {
	const key = "normalizer Precompiled: precompiled_charsmap"
	data, err := base64.StdEncoding.DecodeString(blob)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if len(data) < 4 {
		return nil, fmt.Errorf("%s: %d bytes, want a trie and its texts", key, len(data))
	}
	size := uint64(binary.LittleEndian.Uint32(data))
	data = data[4:]
	if size == 0 || size%4 != 0 || size > uint64(len(data)) {
		return nil, fmt.Errorf("%s: a trie of %d bytes in %d, want a multiple of 4 that fits", key, size, len(data))
	}
	m := &charsMap{trie: make([]uint32, size/4), texts: string(data[size:])}
	for i := range m.trie {
		m.trie[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	if !utf8.ValidString(m.texts) {
		return nil, fmt.Errorf("%s: the replacements are not UTF-8", key)
	}
	return m, nil
}

// lookup returns the replacement of the shortest key that is a prefix of text.
func (m *charsMap) lookup(text string) (string, bool) {
	unit := m.trie[0]
	at := offset(unit)
	for i := range len(text) {
		c := uint32(text[i])
		if at ^= c; c == 0 || at >= uint32(len(m.trie)) {
			return "", false
		}
		unit = m.trie[at]
		if unit&0x800000FF != c {
			return "", false
		}
		if at ^= offset(unit); at >= uint32(len(m.trie)) {
			return "", false
		}
		if unit&(1<<8) != 0 {
			from := m.trie[at] & 0x7FFFFFFF
			if from > uint32(len(m.texts)) {
				return "", false
			}
			replacement, _, _ := strings.Cut(m.texts[from:], "\x00")
			return replacement, true
		}
	}
	return "", false
}

// offset returns how far the children of a unit lie: 21 bits, in steps of 256 where bit 9 is set.
func offset(unit uint32) uint32 { return (unit >> 10) << ((unit & (1 << 9)) >> 6) }

// maxCluster is the length in bytes from which a grapheme cluster is not looked up as a whole.
const maxCluster = 6

// apply replaces every extended grapheme cluster that the table has, else every code point of it that the
// table has.
func (m *charsMap) apply(text string) string {
	var out strings.Builder
	out.Grow(len(text))
	for clusters := graphemes.FromString(text); clusters.Next(); {
		cluster := clusters.Value()
		if len(cluster) < maxCluster {
			if replacement, ok := m.lookup(cluster); ok {
				out.WriteString(replacement)
				continue
			}
		}
		for i, r := range cluster {
			char := cluster[i : i+utf8.RuneLen(r)]
			if replacement, ok := m.lookup(char); ok {
				char = replacement
			}
			out.WriteString(char)
		}
	}
	return out.String()
}
