package page

import (
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

// inline renders the text of a paragraph, a cell or a heading: code, links, pictures, emphasis, escapes. Whatever it
// does not know is text.
func (r *pageRenderer) inline(s string) string {
	var b strings.Builder
	strong, emphasis := false, false
	for i := 0; i < len(s); {
		rest := s[i:]
		switch {
		case rest[0] == '\\' && len(rest) > 1 && isPunctuation(rest[1]):
			b.WriteString(html.EscapeString(rest[1:2]))
			i += 2
		case rest[0] == '`':
			text, n := codeSpan(rest)
			b.WriteString(text)
			i += n
		case strings.HasPrefix(rest, "<br>"):
			b.WriteString("<br>")
			i += len("<br>")
		case strings.HasPrefix(rest, "!["):
			text, destination, n := link(rest[1:])
			if n == 0 {
				b.WriteString("!")
				i++
				break
			}
			b.WriteString(r.plot(destination, html.EscapeString(withoutTags(r.inline(text)))))
			i += 1 + n
		case rest[0] == '[':
			text, destination, n := link(rest)
			if n == 0 {
				b.WriteString("[")
				i++
				break
			}
			b.WriteString(`<a href="` + html.EscapeString(pageOf(destination)) + `">` + r.inline(text) + "</a>")
			i += n
		case strings.HasPrefix(rest, "**") && flanks(s, i, 2, strong):
			b.WriteString(tag("strong", strong))
			strong = !strong
			i += 2
		case rest[0] == '*' && flanks(s, i, 1, emphasis):
			b.WriteString(tag("em", emphasis))
			emphasis = !emphasis
			i++
		case rest[0] == '&':
			text, n := entity(rest)
			b.WriteString(html.EscapeString(text))
			i += n
		default:
			_, n := utf8.DecodeRuneInString(rest)
			b.WriteString(html.EscapeString(rest[:n]))
			i += n
		}
	}
	return b.String()
}

func tag(name string, open bool) string {
	if open {
		return "</" + name + ">"
	}
	return "<" + name + ">"
}

// flanks says whether the n asterisks at i open emphasis (no space behind, and an end further on) or, where it is
// open, close it (no space before).
func flanks(s string, i, n int, open bool) bool {
	if open {
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		return !unicode.IsSpace(before)
	}
	behind, _ := utf8.DecodeRuneInString(s[i+n:])
	return i+n < len(s) && !unicode.IsSpace(behind) && strings.Contains(s[i+n:], strings.Repeat("*", n))
}

// codeSpan renders code that begins s, and returns how long it is; backticks without an end are text.
func codeSpan(s string) (text string, n int) {
	fence := s[:len(s)-len(strings.TrimLeft(s, "`"))]
	for at := len(fence); at < len(s); {
		k := strings.Index(s[at:], fence)
		if k < 0 {
			break
		}
		end := at + k
		run := len(s[end:]) - len(strings.TrimLeft(s[end:], "`"))
		if run == len(fence) {
			code := strings.ReplaceAll(s[len(fence):end], "\n", " ")
			if strings.HasPrefix(code, " ") && strings.HasSuffix(code, " ") && strings.TrimSpace(code) != "" {
				code = code[1 : len(code)-1]
			}
			return "<code>" + html.EscapeString(code) + "</code>", end + run
		}
		at = end + run
	}
	return fence, len(fence)
}

// link takes [text](destination) apart and returns its length, 0 when s begins with no link.
func link(s string) (text, destination string, n int) {
	depth, end := 0, -1
	for i := 0; i < len(s) && end < 0; i++ {
		switch s[i] {
		case '\\':
			i++
		case '`':
			_, k := codeSpan(s[i:])
			i += k - 1
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				end = i
			}
		}
	}
	if end < 0 || end+1 >= len(s) || s[end+1] != '(' {
		return "", "", 0
	}
	depth = 0
	for i := end + 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ' ', '\n':
			return "", "", 0
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return s[1:end], unescape(s[end+2 : i]), i + 1
			}
		}
	}
	return "", "", 0
}

// unescape takes the backslashes of a destination away.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && isPunctuation(s[i+1]) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// entity decodes what begins with an ampersand, which may also be one.
func entity(s string) (text string, n int) {
	if end := strings.IndexByte(s, ';'); end > 0 && end < 32 {
		if text := html.UnescapeString(s[:end+1]); text != s[:end+1] {
			return text, end + 1
		}
	}
	return "&", 1
}

func isPunctuation(c byte) bool {
	return c >= '!' && c <= '/' || c >= ':' && c <= '@' || c >= '[' && c <= '`' || c >= '{' && c <= '~'
}

// withoutTags is the text that rendered words show.
func withoutTags(rendered string) string {
	return html.UnescapeString(betweenTags(rendered))
}

// betweenTags is what stands between tags.
func betweenTags(s string) string {
	var b strings.Builder
	inside := false
	for _, r := range s {
		switch {
		case r == '<':
			inside = true
		case r == '>':
			inside = false
		case !inside:
			b.WriteRune(r)
		}
	}
	return b.String()
}
