package tokenizer

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Split names the rule by which a pre-tokenizer cuts text into pieces, which no merge crosses.
type Split int

const (
	// Qwen2 is the rule of Qwen2 and Qwen2.5.
	Qwen2 Split = iota
	// GPT2 is the rule of GPT-2, RoBERTa and BART.
	GPT2
	// CLIP is the rule of CLIP, which keeps no white space between pieces.
	CLIP
	// Llama3 is the rule of Llama 3 and SmolLM3: Qwen2's, with up to three digits in a piece.
	Llama3
)

// The rules as tokenizer.json spells them.
const (
	qwen2Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// llama3Pattern is also cl100k_base's.
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	clipPattern   = `'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`
	// clipPattern5 is what transformers 5 writes. ByteLevel cuts what its first alternatives find as clipPattern does, but for
	// symbols right behind: "<|ENDOFTEXT|>!" gives "|>" and "!".
	clipPattern5 = `<\|startoftext\|>|<\|endoftext\|>|` + clipPattern
)

// white is Unicode's White_Space as part of a class.
const white = `\t-\r\x{85}\p{Z}`

// patterns are the rules of a Split of tokenizer.json.
var patterns = map[string]Split{qwen2Pattern: Qwen2, gpt2Pattern: GPT2, clipPattern: CLIP, clipPattern5: CLIP, llama3Pattern: Llama3}

// pieces are the rules by Split, each at the start of a text. Go's \s is ASCII's alone, and its expressions do not look ahead: the group
// is \s+, whatever follows.
var pieces = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{pieceOf(qwen2Pattern), pieceOf(gpt2Pattern), pieceOf(clipPattern + `|\s+`), pieceOf(llama3Pattern)}
})

func pieceOf(pattern string) *regexp.Regexp {
	pattern = strings.Replace(pattern, `|\s+(?!\S)|\s+`, `|(\s+)`, 1)
	pattern = strings.ReplaceAll(strings.ReplaceAll(pattern, `[^\s`, `[^`+white), `\s`, `[`+white+`]`)
	return regexp.MustCompile(`^(?:` + pattern + `)`)
}

// next returns the length in bytes of the piece at the start of text, which is not empty.
func (s Split) next(text string) int {
	// A search costs as much as the text is long, and most pieces are short. White space may belong to a line's end far away.
	white := len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
	for size := white + 32; ; size *= 4 {
		part := text[:min(size, len(text))]
		at := pieces()[s].FindStringSubmatchIndex(part)
		if len(part) < len(text) && (at == nil || at[1] > len(part)-2*utf8.UTFMax) {
			continue // it may go on
		}
		end := at[1]
		if len(at) > 2 && at[2] >= 0 && end < len(text) { // \s+(?!\S): before a word, white space leaves its last character to it
			if _, last := utf8.DecodeLastRuneInString(text[:end]); last < end {
				end -= last
			}
		}
		return end
	}
}

// beginsWhite reports whether text begins with white space.
func beginsWhite(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return unicode.Is(unicode.White_Space, r)
}
