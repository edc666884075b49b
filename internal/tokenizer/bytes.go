package tokenizer

import (
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

// GPT-2 writes every byte as one printable letter, so that a vocabulary is readable text: the bytes
// that print stand for themselves, the other 68 for U+0100, U+0101, … in order. The order of the
// letters below is also the order of the first 256 ids of GPT-2 and Qwen2.

var letters, _ = alphabet()

// bytesOf is the reverse of letters.
var bytesOf = func() map[rune]byte {
	of := make(map[rune]byte, len(letters))
	for b, letter := range letters {
		of[letter] = byte(b)
	}
	return of
}()

// alphabet returns the letter of each byte, and the bytes in the order of their ids.
func alphabet() (letter [256]rune, order [256]byte) {
	prints := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE }
	n := 0
	for b := range 256 {
		if prints(b) {
			letter[b], order[n] = rune(b), byte(b)
			n++
		}
	}
	next := rune(0x100)
	for b := range 256 {
		if !prints(b) {
			letter[b], order[n] = next, byte(b)
			next++
			n++
		}
	}
	return letter, order
}

// unletter returns the bytes that a token of a byte-level vocabulary stands for; a token with a letter outside
// the alphabet (an added token) stands for its own UTF-8 text, and so does any token of another vocabulary.
func (t *Tokenizer) unletter(token string) string {
	if t.unigram != nil || t.rules.characters {
		return token
	}
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := bytesOf[r]
		if !ok {
			return token
		}
		out = append(out, b)
	}
	return string(out)
}

// validUTF8 replaces every maximal ill-formed part of b by one U+FFFD, as Unicode (§3.9), Python and
// Rust do: a truncated sequence counts once, a byte that begins nothing counts once. Go's range and
// strings.ToValidUTF8 count differently.
func validUTF8(b string) string {
	if utf8.ValidString(b) {
		return b
	}
	text, _ := unicode.UTF8.NewDecoder().String(b) // which has no error
	return text
}
