package reports

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// document is a markdown file under construction.
type document struct{ b strings.Builder }

func (d *document) heading(level int, format string, args ...any) {
	fmt.Fprintf(&d.b, "%s %s\n\n", strings.Repeat("#", level), fmt.Sprintf(format, args...))
}

func (d *document) paragraph(format string, args ...any) {
	fmt.Fprintf(&d.b, "%s\n\n", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (d *document) list(items ...string) {
	for _, item := range items {
		fmt.Fprintf(&d.b, "- %s\n", item)
	}
	d.b.WriteString("\n")
}

func (d *document) code(lines ...string) {
	fmt.Fprintf(&d.b, "```\n%s\n```\n\n", strings.Join(lines, "\n"))
}

// table writes a table; columns whose header starts with ">" are right-aligned.
func (d *document) table(header []string, rows [][]string) {
	d.b.WriteString("|")
	for _, h := range header {
		d.b.WriteString(" " + strings.TrimPrefix(h, ">") + " |")
	}
	d.b.WriteString("\n|")
	for _, h := range header {
		if strings.HasPrefix(h, ">") {
			d.b.WriteString("---:|")
		} else {
			d.b.WriteString("---|")
		}
	}
	d.b.WriteString("\n")
	for _, row := range rows {
		d.b.WriteString("|")
		for _, cell := range row {
			d.b.WriteString(" " + cell + " |")
		}
		d.b.WriteString("\n")
	}
	d.b.WriteString("\n")
}

// plain makes foreign text (questions, answers, messages) safe inside a paragraph or a table cell.
func plain(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.NewReplacer(`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;", "[", `\[`, "#", `\#`).Replace(s)
}

// visibleSpace stands for spaces that a page would not show.
const visibleSpace = "␣"

// textCode writes any text as code in a line, so that a reader sees what a model wrote: characters that do
// not print as escapes, spaces at an edge or side by side as marks, at most width characters of it.
func textCode(s string, width int) string {
	if s == "" {
		return "(empty)"
	}
	runes, cut := []rune(s), "" // what is no UTF-8 becomes U+FFFD
	if len(runes) > width {
		runes, cut = runes[:width], "…"
	}
	var b strings.Builder
	for i, r := range runes {
		switch {
		case r == ' ' && (i == 0 || i == len(runes)-1 || runes[i-1] == ' '):
			b.WriteString(visibleSpace)
		case r == '\\':
			b.WriteString(`\\`)
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			escape := strconv.QuoteRuneToASCII(r)
			b.WriteString(escape[1 : len(escape)-1])
		}
	}
	text, fence := b.String(), "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " " // one space on each side belongs to the fence
	}
	return fence + text + fence + cut
}

// textCell is textCode inside a table, which is cut at bars before code is found. Backslashes of the text
// are doubled, so that no bar is left unescaped.
func textCell(s string, width int) string {
	return strings.ReplaceAll(textCode(s, width), "|", `\|`)
}

// clip shortens a text to width characters, the last of them an ellipsis.
func clip(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// shellCommand quotes argv for a POSIX shell.
func shellCommand(argv []string) string {
	var out []string
	for _, arg := range argv {
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$`!*?[]{}()<>|&;#~") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		out = append(out, arg)
	}
	return strings.Join(out, " ")
}

// tableCode is codeList for a cell of a table, where a bar would end the cell.
func tableCode(overrides []string) string { return strings.ReplaceAll(codeList(overrides), "|", `\|`) }

func codeList(overrides []string) string {
	if len(overrides) == 0 {
		return "as configured"
	}
	out := make([]string, len(overrides))
	for i, o := range overrides {
		out[i] = inlineCode(o)
	}
	return strings.Join(out, " ")
}

// codeBlock writes foreign lines, whatever backticks are in them.
func (d *document) codeBlock(lines []string) {
	fence := "```"
	for slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, fence) }) {
		fence += "`"
	}
	fmt.Fprintf(&d.b, "%s\n%s\n%s\n\n", fence, strings.Join(lines, "\n"), fence)
}

// inlineCode writes any text as code in a line.
func inlineCode(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if strings.Contains(s, "`") {
		return "`` " + s + " ``"
	}
	return "`" + s + "`"
}
