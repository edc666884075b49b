package tokenizer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"fulcrum/internal/jsonwords"
)

// normalizer is one step that text takes before it is cut into pieces.
type normalizer func(text string) string

// replacements are the regular expressions of Replace that are known, of CLIP and of the newer conversions of T5, as Go writes them.
var replacements = map[string]string{`\s+`: `[` + white + `]+`, " {2,}": " {2,}"}

// readNormalizers reads the normalizer of tokenizer.json: null, one step, or a sequence of them.
func readNormalizers(raw json.RawMessage) ([]normalizer, error) {
	parts, err := sequence(raw, "normalizers")
	if err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	out := make([]normalizer, len(parts))
	for i, p := range parts {
		if out[i], err = readNormalizer(p); err != nil {
			return nil, err
		}
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
		Prepend  string
	}
	if err := jsonwords.Unmarshal(raw, &n); err != nil {
		return nil, fmt.Errorf("normalizer %s: %w", kind, err)
	}
	switch kind {
	case "NFC":
		return nfc, nil
	case "Precompiled":
		m, err := newCharsMap(n.CharsMap)
		return m.apply, err
	case "Prepend":
		return func(text string) string {
			if text == "" {
				return ""
			}
			return n.Prepend + text
		}, nil
	case "Lowercase":
		return func(text string) string { // every character by itself, as Rust's char::to_lowercase; Go maps \u0130 to i alone
			return strings.Map(unicode.ToLower, strings.ReplaceAll(text, "\u0130", "i\u0307"))
		}, nil
	case "Strip":
		return func(text string) string {
			if n.Left {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			if n.Right {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text
		}, nil
	case "Replace":
		switch {
		case n.Pattern.String != nil && *n.Pattern.String != "":
			return func(text string) string { return strings.ReplaceAll(text, *n.Pattern.String, n.Content) }, nil
		case n.Pattern.Regex != nil:
			known, ok := replacements[*n.Pattern.Regex]
			if !ok {
				return nil, unsupported("normalizer Replace", *n.Pattern.Regex, "a String", fmt.Sprintf("the Regexes %q and %q", `\s+`, " {2,}"))
			}
			pattern := regexp.MustCompile(known)
			return func(text string) string { return pattern.ReplaceAllLiteralString(text, n.Content) }, nil
		}
		return nil, fmt.Errorf("normalizer Replace: want a pattern with a String that is not empty")
	}
	return nil, unsupported("normalizer", kind, "NFC", "Precompiled", "Strip", "Replace", "Prepend", "Lowercase", "none")
}
