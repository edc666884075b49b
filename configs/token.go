package configs

import "strings"

// The tokens of the value grammar: the longest match wins, and blanks belong to the punctuation beside them.

type token uint8

const (
	tokEnd token = iota
	tokWord
	tokNull
	tokInt
	tokFloat
	tokBool
	tokChar
	tokEscape
	tokBlank
	tokInterp
	tokColon
	tokComma
	tokEqual
	tokParenOpen
	tokParenClose
	tokListOpen
	tokListClose
	tokDictOpen
	tokDictClose
	tokQuote
	tokBad
)

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }

func wordLen(s string) int {
	if s == "" || !letter(s[0]) {
		return 0
	}
	i := 1
	for i < len(s) && (letter(s[i]) || digit(s[i]) || s[i] == '-') {
		i++
	}
	return i
}

func blanks(s string) int { return span(s, " \t") }

// closers end at themselves; joiners take the blanks behind them.
var (
	closers = map[byte]token{')': tokParenClose, ']': tokListClose, '}': tokDictClose}
	joiners = map[byte]token{':': tokColon, ',': tokComma, '=': tokEqual, '(': tokParenOpen}
)

// peek returns the token at the current position and its length: the longest match.
func (p *valueParser) peek() (token, int) {
	s := p.s[p.pos:]
	if s == "" {
		return tokEnd, 0
	}
	n := blanks(s) // they belong to the punctuation behind them
	if n < len(s) {
		if kind, ok := closers[s[n]]; ok {
			return kind, n + 1
		}
		if kind, ok := joiners[s[n]]; ok {
			return kind, n + 1 + blanks(s[n+1:])
		}
	}
	if n > 0 {
		return tokBlank, n
	}
	c := s[0]
	if letter(c) {
		n := wordLen(s)
		switch strings.ToLower(s[:n]) {
		case "null":
			return tokNull, n
		case "true", "false":
			return tokBool, n
		case "inf", "nan":
			return tokFloat, n
		}
		return tokWord, n
	}
	if n, isFloat := numberLen(s); n > 0 {
		if isFloat {
			return tokFloat, n
		}
		return tokInt, n
	}
	switch c {
	case '[':
		return tokListOpen, 1 + blanks(s[1:])
	case '{':
		return tokDictOpen, 1 + blanks(s[1:])
	case '\'', '"':
		return tokQuote, 1
	case '\\':
		if n := escapeLen(s); n > 0 {
			return tokEscape, n
		}
		return tokChar, 1
	case '$':
		if strings.HasPrefix(s, "${") {
			if p.nested {
				return tokInterp, 2
			}
			if end := strings.IndexByte(s, '}'); end > 2 {
				return tokInterp, end + 1
			}
		}
		return tokChar, 1
	case '/', '-', '+', '.', '%', '*', '@', '?', '|':
		return tokChar, 1
	}
	return tokBad, 1
}

// escapeLen is the length of a run of escapes: \\ \( \) \[ \] \{ \} \: \= \, "\ " "\<tab>".
func escapeLen(s string) int {
	n := 0
	for n+1 < len(s) && s[n] == '\\' && strings.IndexByte("\\()[]{}:=, \t", s[n+1]) >= 0 {
		n += 2
	}
	return n
}

func unescape(s string) string {
	out := make([]byte, 0, len(s)/2)
	for i := 1; i < len(s); i += 2 {
		out = append(out, s[i])
	}
	return string(out)
}

// numberLen matches an INT or FLOAT of the override grammar at the start of s.
func numberLen(s string) (n int, isFloat bool) {
	i := 0
	if s[0] == '+' || s[0] == '-' {
		i = 1
		if len(s) >= 4 && (strings.EqualFold(s[1:4], "inf") || strings.EqualFold(s[1:4], "nan")) {
			return 4, true
		}
	}
	body := s[i:]
	whole := intLen(body)
	n = whole
	if n < len(body) && body[n] == '.' {
		frac := digitsLen(body[n+1:])
		if whole > 0 || frac > 0 {
			n += 1 + frac
			isFloat = true
		}
	}
	if n == 0 {
		return 0, false
	}
	if n < len(body) && (body[n] == 'e' || body[n] == 'E') {
		e := n + 1
		if e < len(body) && (body[e] == '+' || body[e] == '-') {
			e++
		}
		if d := digitsLen(body[min(e, len(body)):]); d > 0 {
			return i + e + d, true
		}
	}
	return i + n, isFloat
}

// intLen matches 0 | [1-9](_?[0-9])*.
func intLen(s string) int {
	if s == "" || !digit(s[0]) {
		return 0
	}
	if s[0] == '0' {
		return 1
	}
	return digitsLen(s)
}

// digitsLen matches [0-9](_?[0-9])*.
func digitsLen(s string) int {
	if s == "" || !digit(s[0]) {
		return 0
	}
	i := 1
	for i < len(s) {
		switch {
		case digit(s[i]):
			i++
		case s[i] == '_' && i+1 < len(s) && digit(s[i+1]):
			i += 2
		default:
			return i
		}
	}
	return i
}
