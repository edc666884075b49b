package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The pre-tokenizers cut text into pieces that no merge crosses. Their regular expressions need
// look-ahead, which Go's regexp lacks, so they are written out; each branch names its alternative.

// Split names the rule that cuts text into pieces.
type Split int

const (
	// Qwen2 is the rule of Qwen2 and Qwen2.5:
	// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
	Qwen2 Split = iota
	// GPT2 is the rule of GPT-2, RoBERTa and BART:
	// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
	GPT2
	// CLIP is the rule of CLIP, which keeps no white space between pieces:
	// 's|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+
	CLIP
)

// qwen2Pattern and gpt2Pattern are the rules as tokenizer.json spells them.
const (
	qwen2Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt2Pattern  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	clipPattern  = `'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`
	// clipPattern5 is what transformers 5 writes. ByteLevel cuts what its first alternatives find as clipPattern does, but for
	// symbols right behind: "<|ENDOFTEXT|>!" gives "|>" and "!".
	clipPattern5 = `<\|startoftext\|>|<\|endoftext\|>|` + clipPattern
)

// next returns the length in bytes of the piece at the start of text, which is not empty.
func (s Split) next(text string) int {
	switch s {
	case GPT2:
		return nextGPT2(text)
	case CLIP:
		return nextCLIP(text)
	}
	return nextQwen2(text)
}

// nextCLIP takes runs of white space for pieces, which are dropped.
func nextCLIP(text string) int {
	if text[0] == '\'' {
		if n := contraction(text, false); n > 0 {
			return n
		}
	}
	c, n := classAt(text)
	if c == number {
		return n
	}
	return run(text, n, c)
}

type class uint8

const (
	other class = iota // neither of the three, and the end of the text
	letter
	number
	space
)

// classAt returns the class and the length of the first rune of text; length 0 at its end.
func classAt(text string) (class, int) {
	if text == "" {
		return other, 0
	}
	c := text[0]
	if c < utf8.RuneSelf {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			return letter, 1
		case c >= '0' && c <= '9':
			return number, 1
		case c == ' ' || c >= '\t' && c <= '\r':
			return space, 1
		}
		return other, 1
	}
	r, n := utf8.DecodeRuneInString(text)
	switch {
	case unicode.IsLetter(r):
		return letter, n
	case unicode.IsNumber(r):
		return number, n
	case unicode.Is(unicode.White_Space, r):
		return space, n
	}
	return other, n
}

// run returns where the run of class c that covers text[from:] begins to end.
func run(text string, from int, c class) int {
	for from < len(text) {
		k, n := classAt(text[from:])
		if k != c {
			break
		}
		from += n
	}
	return from
}

func nextQwen2(text string) int {
	if text[0] == '\'' { // (?i:'s|'t|'re|'ve|'m|'ll|'d)
		if n := contraction(text, true); n > 0 {
			return n
		}
	}
	first, n := classAt(text)
	switch first { // [^\r\n\p{L}\p{N}]?\p{L}+, then \p{N}
	case letter:
		return run(text, n, letter)
	case number:
		return n
	}
	if text[0] != '\r' && text[0] != '\n' {
		if second, m := classAt(text[n:]); second == letter {
			return run(text, n+m, letter)
		}
	}
	if end := symbols(text); end > 0 { // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
		for end < len(text) && (text[end] == '\r' || text[end] == '\n') {
			end++
		}
		return end
	}
	end := run(text, n, space) // what remains begins with white space
	for i := end - 1; i >= 0; i-- {
		if text[i] == '\r' || text[i] == '\n' { // \s*[\r\n]+: up to the last line end of the run
			return i + 1
		}
	}
	return spaces(text, end)
}

func nextGPT2(text string) int {
	if text[0] == '\'' { // 's|'t|'re|'ve|'m|'ll|'d
		if n := contraction(text, false); n > 0 {
			return n
		}
	}
	at := 0
	if text[0] == ' ' {
		at = 1
	}
	switch c, _ := classAt(text[at:]); c { // ` ?\p{L}+| ?\p{N}+`
	case letter, number:
		return run(text, at, c)
	}
	if end := symbols(text); end > 0 { // ` ?[^\s\p{L}\p{N}]+`
		return end
	}
	return spaces(text, run(text, 0, space))
}

// symbols matches ` ?[^\s\p{L}\p{N}]+` at the start of text; 0 when it does not match.
func symbols(text string) int {
	at := 0
	if text[0] == ' ' {
		at = 1
	}
	if end := run(text, at, other); end > at {
		return end
	}
	return 0
}

// spaces matches \s+(?!\S)|\s+ on the run of white space text[:end]: before a word the run leaves its
// last rune to it.
func spaces(text string, end int) int {
	if end == len(text) {
		return end
	}
	if _, last := utf8.DecodeLastRuneInString(text[:end]); last < end {
		return end - last
	}
	return end
}

// contraction matches 's|'t|'re|'ve|'m|'ll|'d at the start of text, which begins with an apostrophe;
// 0 when it does not match. Without case, U+017F (long s) is an s.
func contraction(text string, anyCase bool) int {
	at := func(i int) byte {
		if i >= len(text) {
			return 0
		}
		c := text[i]
		if anyCase && c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	switch at(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if at(2) == 'e' {
			return 3
		}
	case 'l':
		if at(2) == 'l' {
			return 3
		}
	case "ſ"[0]:
		if anyCase && at(2) == "ſ"[1] {
			return 3
		}
	}
	return 0
}
