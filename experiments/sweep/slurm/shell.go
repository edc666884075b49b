package slurm

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shellQuote makes any text one word of bash, on one line: control characters and bytes that are not UTF-8 are
// written as $'\n', so that no text can end a comment. No word of a shell holds a NUL: those are refused before.
func shellQuote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%") == "" {
		return text
	}
	if !unprintable(text) {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case unprintable(text[:n]):
			for _, c := range []byte(text[:n]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		case r == '\'' || r == '\\':
			b.WriteString(`\` + text[:n])
		default:
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String() + "'"
}

// unprintable reports whether text holds control characters, line separators or bytes that are not UTF-8.
func unprintable(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp)
	})
}
