package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"fulcrum/internal/jsonwords"
)

// normalizer is one step that text takes before it is cut into pieces.
type normalizer interface {
	apply(text string) string
	json() any // as tokenizer.json writes it
}

// nfcForm brings text to Unicode's normalization form C.
type nfcForm struct{}

func (nfcForm) apply(text string) string { return nfc(text) }
func (nfcForm) json() any                { return map[string]any{"type": "NFC"} }

// strip removes white space at the ends.
type strip struct{ left, right bool }

func (s strip) apply(text string) string {
	if s.left {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
	}
	if s.right {
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	}
	return text
}

func (s strip) json() any {
	return map[string]any{"type": "Strip", "strip_left": s.left, "strip_right": s.right}
}

// lowercase maps every character by itself, as Rust's char::to_lowercase does.
type lowercase struct{}

func (lowercase) apply(text string) string {
	// The one character that becomes two. Go maps it to i alone.
	return strings.Map(unicode.ToLower, strings.ReplaceAll(text, "\u0130", "i\u0307"))
}

func (lowercase) json() any { return map[string]any{"type": "Lowercase"} }

// squeeze puts one space in the place of every run of white space.
type squeeze struct{}

// whitePattern is how tokenizer.json writes it.
const whitePattern = `\s+`

func (squeeze) apply(text string) string {
	var out strings.Builder
	white := false
	for _, r := range text {
		if unicode.Is(unicode.White_Space, r) {
			if !white {
				out.WriteByte(' ')
			}
			white = true
			continue
		}
		white = false
		out.WriteRune(r)
	}
	return out.String()
}

func (squeeze) json() any {
	return map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": whitePattern}, "content": " "}
}

// replace puts content in the place of a text, or of every run of two or more spaces (old is "").
type replace struct{ old, content string }

// spacesPattern is the regular expression of the newer conversions of T5.
const spacesPattern = " {2,}"

func (r replace) apply(text string) string {
	if r.old != "" {
		return strings.ReplaceAll(text, r.old, r.content)
	}
	var out strings.Builder
	for {
		at := strings.Index(text, "  ")
		if at < 0 {
			break
		}
		out.WriteString(text[:at] + r.content)
		text = strings.TrimLeft(text[at:], " ")
	}
	return out.String() + text
}

func (r replace) json() any {
	pattern := map[string]any{"String": r.old}
	if r.old == "" {
		pattern = map[string]any{"Regex": spacesPattern}
	}
	return map[string]any{"type": "Replace", "pattern": pattern, "content": r.content}
}

// readNormalizers reads the normalizer of tokenizer.json: null, one step, or a sequence of them.
func readNormalizers(raw json.RawMessage) ([]normalizer, error) {
	parts, err := sequence(raw, "normalizers")
	if err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	var out []normalizer
	for _, p := range parts {
		n, err := readNormalizer(p)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func readNormalizer(raw json.RawMessage) (normalizer, error) {
	kind := typeOf(raw)
	var n struct {
		CharsMap string `json:"precompiled_charsmap"`
		Left     bool   `json:"strip_left"`
		Right    bool   `json:"strip_right"`
		Pattern  struct{ String, Regex *string }
		Content  string
	}
	if err := jsonwords.Unmarshal(raw, &n); err != nil {
		return nil, fmt.Errorf("normalizer %s: %w", kind, err)
	}
	switch kind {
	case "NFC":
		return nfcForm{}, nil
	case "Precompiled":
		return newCharsMap(n.CharsMap)
	case "Lowercase":
		return lowercase{}, nil
	case "Strip":
		return strip{n.Left, n.Right}, nil
	case "Replace":
		switch {
		case n.Pattern.String != nil && *n.Pattern.String != "":
			return replace{*n.Pattern.String, n.Content}, nil
		case n.Pattern.Regex != nil && *n.Pattern.Regex == spacesPattern:
			return replace{"", n.Content}, nil
		case n.Pattern.Regex != nil && *n.Pattern.Regex == whitePattern && n.Content == " ":
			return squeeze{}, nil
		case n.Pattern.Regex != nil:
			return nil, unsupported("normalizer Replace", *n.Pattern.Regex, "a String", fmt.Sprintf("the Regex %q", spacesPattern),
				fmt.Sprintf("the Regex %q by a space", whitePattern))
		}
		return nil, fmt.Errorf("normalizer Replace: want a pattern with a String that is not empty")
	}
	return nil, unsupported("normalizer", kind, "NFC", "Precompiled", "Strip", "Replace", "Lowercase", "none")
}
