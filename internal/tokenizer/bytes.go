package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// GPT-2 writes every byte as one printable letter, so that a vocabulary is readable text: the bytes
// that print stand for themselves, the other 68 for U+0100, U+0101, … in order. The order of the
// letters below is also the order of the first 256 ids of GPT-2 and Qwen2.

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

// unletter returns the bytes that a token of the vocabulary stands for; a token with a letter outside
// the alphabet (an added token) stands for its own UTF-8 text.
func unletter(token string, byteOf map[rune]byte) string {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := byteOf[r]
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
	var out strings.Builder
	out.Grow(len(b) + 8)
	for len(b) > 0 {
		r, n := utf8.DecodeRuneInString(b)
		if r != utf8.RuneError || n > 1 {
			out.WriteString(b[:n])
		} else {
			n = illFormed(b)
			out.WriteRune(utf8.RuneError)
		}
		b = b[n:]
	}
	return out.String()
}

// illFormed returns the length of the maximal ill-formed part at the start of b: the longest prefix
// of some well-formed sequence, at least one byte.
func illFormed(b string) int {
	lo, hi, want := byte(0x80), byte(0xBF), 0 // the range of the second byte, and how many bytes follow the first
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 1
	case c == 0xE0:
		lo, want = 0xA0, 2
	case c == 0xED:
		hi, want = 0x9F, 2
	case c >= 0xE1 && c <= 0xEF:
		want = 2
	case c == 0xF0:
		lo, want = 0x90, 3
	case c >= 0xF1 && c <= 0xF3:
		want = 3
	case c == 0xF4:
		hi, want = 0x8F, 3
	}
	n := 1
	for n <= want && n < len(b) && b[n] >= lo && b[n] <= hi {
		lo, hi = 0x80, 0xBF
		n++
	}
	return n
}
