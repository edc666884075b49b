package page

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
)

// Document is a markdown file under construction.
type Document struct {
	B       strings.Builder
	Tables  []*Table // those of the text, each with the heading that it stands under
	heading string
}

func (d *Document) Text() string { return strings.TrimRight(d.B.String(), "\n") + "\n" }

// Console is the document as a terminal shows it: prose and tables of at most width characters, without markup.
func (d *Document) Console(width int) string {
	var b strings.Builder
	tables, inTable := d.Tables, false
	for line := range strings.SplitSeq(strings.TrimSuffix(d.Text(), "\n"), "\n") {
		isRow := strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "|-") || strings.HasPrefix(line, "|:")
		switch {
		case isRow && !inTable && len(tables) > 0:
			_ = tables[0].ConsoleWithin(&b, width) // a builder takes every write
			tables = tables[1:]
		case !isRow:
			b.WriteString(stdout.Fold(PlainText(Markup(program.AsCalled(strings.TrimLeft(line, "#")))), width, 0) + "\n")
		}
		inTable = isRow
	}
	return b.String()
}

func (d *Document) Heading(level int, format string, args ...any) {
	words := fmt.Sprintf(format, args...)
	d.heading = PlainText(Markup(words))
	fmt.Fprintf(&d.B, "%s %s\n\n", strings.Repeat("#", level), words)
}

// Paragraph writes a paragraph; without words it writes none.
func (d *Document) Paragraph(format string, args ...any) {
	if text := strings.TrimSpace(fmt.Sprintf(format, args...)); text != "" {
		d.B.WriteString(text + "\n\n")
	}
}

// Fold ends what a page shows at once: it closes each section that follows until a reader opens it. In the file it is a rule.
func (d *Document) Fold() { d.B.WriteString("---\n\n") }

func (d *Document) List(items ...string) {
	for _, item := range items {
		fmt.Fprintf(&d.B, "- %s\n", item)
	}
	d.B.WriteString("\n")
}

func (d *Document) Code(lines ...string) {
	fmt.Fprintf(&d.B, "```\n%s\n```\n\n", strings.Join(lines, "\n"))
}

// Table writes a table; columns whose header starts with ">" are right-aligned.
func (d *Document) Table(header []string, rows [][]string) {
	t := NewTable(header, rows)
	t.Title = d.heading
	d.Add(t)
}

func (d *Document) Add(t *Table) {
	d.Tables = append(d.Tables, t)
	_ = t.Markdown(&d.B) // a builder takes every write
	d.B.WriteString("\n")
}

// Plain makes foreign text (questions, answers, messages) safe inside a paragraph or a table cell. What Markdown reads as text anyway
// has no backslash, so that the file reads well as it is: val_reward, p < 0.001.
func Plain(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	runes := []rune(s)
	var b strings.Builder
	before := ' ' // the last rune that is no underscore
	begins := -1  // where the text, if a paragraph begins with it, would begin something else
	if begin := blocks.FindString(s); begin != "" {
		begins = max(strings.IndexAny(begin, ".)"), 0)
	}
	for i, r := range runes {
		after := 'x' // what follows the text is not known
		if i+1 < len(runes) {
			after = runes[i+1]
		}
		inWord := unicode.IsLetter(before) || unicode.IsDigit(before)
		switch {
		case i == begins, strings.ContainsRune("\\|*`#", r),
			r == '[' && !closed.MatchString(string(runes[i:])),
			r == '_' && !inWord && after != ' ', // elsewhere it begins no emphasis (CommonMark 6.2)
			r == '<' && (unicode.IsLetter(after) || strings.ContainsRune("/!?", after)):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		if r != '_' {
			before = r
		}
	}
	return b.String()
}

// blocks is what begins a fence, a quote, a list or a rule (CommonMark 4 and 5); other such marks are escaped wherever they stand.
var blocks = regexp.MustCompile(`^(~~~|>|([-+]+|\d{1,9}[.)])( |$))`)

// closed is a bracket that opens no link: it ends in the same text, and nothing follows that a destination begins with (CommonMark 6.3).
var closed = regexp.MustCompile(`^\[[^\][]*\]([^(\[:]|$)`)

// VisibleSpace stands for spaces that a page would not show.
const VisibleSpace = "␣"

// TextCode writes any text as code in a line, so that a reader sees what a model wrote: characters that do
// not print as escapes, spaces at an edge or side by side as marks, at most width characters of it.
func TextCode(s string, width int) string {
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
			b.WriteString(VisibleSpace)
		case r == '\\':
			b.WriteString(`\\`)
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			escape := strconv.QuoteRuneToASCII(r)
			b.WriteString(escape[1 : len(escape)-1])
		}
	}
	return code(b.String()) + cut
}

// code puts a text between fences that it cannot leave.
func code(text string) string {
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " " // one space on each side belongs to the fence
	}
	return fence + text + fence
}

// TextCell is TextCode inside a table, which is cut at bars before code is found. Backslashes of the text
// are doubled, so that no bar is left unescaped.
func TextCell(s string, width int) string { return strings.ReplaceAll(TextCode(s, width), "|", `\|`) }

// Clip shortens a text to width characters, the last of them an ellipsis.
func Clip(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

func ShellCommand(argv []string) string { return program.Quoted(argv...) }

// TableCode is CodeList for a cell of a table, where a bar would end the cell.
func TableCode(overrides []string) string { return strings.ReplaceAll(CodeList(overrides), "|", `\|`) }

func CodeList(overrides []string) string {
	if len(overrides) == 0 {
		return "as configured"
	}
	return strings.Join(list.Map(overrides, InlineCode), " ")
}

// CodeBlock writes foreign lines, whatever backticks are in them.
func (d *Document) CodeBlock(lines []string) {
	fence := "```"
	for slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, fence) }) {
		fence += "`"
	}
	fmt.Fprintf(&d.B, "%s\n%s\n%s\n\n", fence, strings.Join(lines, "\n"), fence)
}

// InlineCode writes any text as code in a line.
func InlineCode(s string) string { return code(strings.Join(strings.Fields(s), " ")) }
