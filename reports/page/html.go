package page

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
)

const HtmlFile = "report.html"

//go:embed html.css
var htmlStyle string

// WriteText writes a report's markdown as report.md of dir, and the same as report.html: one file with the plots
// of dir in it, which needs no network.
func WriteText(dir, markdown string) error {
	page := HTML(markdown, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))) })
	if err := atomicfile.Write(filepath.Join(dir, ReportFile), []byte(markdown), 0o644); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, HtmlFile), page, 0o644)
}

// WritePage writes a report without plots of its own, a comparison say, as a page.
func WritePage(path, markdown string) error {
	none := func(string) ([]byte, error) { return nil, os.ErrNotExist }
	return atomicfile.Write(path, HTML(markdown, none), 0o644)
}

// HTML renders a report as one page: equal markdown and plots give equal bytes. read returns the file that an image
// names; a PNG with an SVG of the same name beside it is shown as that.
//
// It reads the markdown that this package writes (document), not any: headings, paragraphs, lists of one level,
// fenced code, tables, and inline code, links, emphasis and line breaks. A library that reads all of it costs a
// tenth of the program's start-up; a test compares the two on what we write.
func HTML(markdown string, read func(name string) ([]byte, error)) []byte {
	r := &pageRenderer{read: read, ids: map[string]int{}}
	r.blocks(strings.Split(markdown, "\n"))
	var page bytes.Buffer
	fmt.Fprintf(&page, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>%s</title>
<style>
%s</style>
</head>
<body>
`, html.EscapeString(r.title), htmlStyle)
	r.writeContents(&page)
	fmt.Fprintf(&page, "<main>\n%s</main>\n</body>\n</html>\n", r.body.String())
	return page.Bytes()
}

// pageRenderer turns markdown into the body of a page.
type pageRenderer struct {
	read     func(name string) ([]byte, error)
	body     bytes.Buffer
	title    string
	contents []contentsEntry
	ids      map[string]int // of headings, by how often they were wanted
}

// contentsEntry is a heading of the second or third level.
type contentsEntry struct {
	level int
	id    string
	html  string
}

// blocks writes a page's blocks one after another.
func (r *pageRenderer) blocks(lines []string) {
	for len(lines) > 0 {
		n := 1
		switch line := lines[0]; {
		case strings.TrimSpace(line) == "":
		case strings.HasPrefix(line, "```"):
			n = r.Code(lines)
		case headingLevel(line) > 0:
			r.Heading(headingLevel(line), strings.TrimSpace(line[headingLevel(line):]))
		case strings.HasPrefix(line, "|") && len(lines) > 1 && isDelimiterRow(lines[1]):
			n = r.Table(lines)
		case strings.HasPrefix(line, "- "):
			n = r.List(lines)
		default:
			n = r.Paragraph(lines)
		}
		lines = lines[n:]
	}
}

// headingLevel is the number of # that a line begins with, 0 for no heading.
func headingLevel(line string) int {
	n := len(line) - len(strings.TrimLeft(line, "#"))
	if n == 0 || n > 6 || n < len(line) && line[n] != ' ' {
		return 0
	}
	return n
}

func (r *pageRenderer) Heading(level int, text string) {
	inner := r.inline(text)
	words := withoutTags(inner)
	if level == 1 && r.title == "" {
		r.title = words
	}
	id := r.id(words)
	if level == 2 || level == 3 {
		r.contents = append(r.contents, contentsEntry{level, id, html.EscapeString(words)})
	}
	fmt.Fprintf(&r.body, "<h%d id=\"%s\">%s</h%d>\n", level, id, inner, level)
}

// id makes a heading's anchor: its letters and digits, and a number where it is not the first of its name.
func (r *pageRenderer) id(words string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(words) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	id := cmp.Or(strings.TrimSuffix(b.String(), "-"), "section")
	r.ids[id]++
	if n := r.ids[id]; n > 1 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return id
}

// Code writes fenced code and returns how many lines it has.
func (r *pageRenderer) Code(lines []string) int {
	fence := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "`"))]
	r.body.WriteString("<pre><code>")
	n := 1
	for ; n < len(lines); n++ {
		if strings.HasPrefix(lines[n], fence) && strings.Trim(lines[n], "` ") == "" {
			n++
			break
		}
		r.body.WriteString(html.EscapeString(lines[n]) + "\n")
	}
	r.body.WriteString("</code></pre>\n")
	return n
}

func (r *pageRenderer) List(lines []string) int {
	r.body.WriteString("<ul>\n")
	n := 0
	for ; n < len(lines) && strings.HasPrefix(lines[n], "- "); n++ {
		fmt.Fprintf(&r.body, "<li>%s</li>\n", r.inline(lines[n][2:]))
	}
	r.body.WriteString("</ul>\n")
	return n
}

// Paragraph writes lines up to the next blank one. The first paragraphs of a report stand out.
func (r *pageRenderer) Paragraph(lines []string) int {
	n := 0
	for n < len(lines) && strings.TrimSpace(lines[n]) != "" {
		n++
	}
	text := strings.Join(lines[:n], "\n")
	if class := calloutOf(text); class != "" {
		fmt.Fprintf(&r.body, "<p class=\"%s\">%s</p>\n", class, r.inline(text))
	} else {
		fmt.Fprintf(&r.body, "<p>%s</p>\n", r.inline(text))
	}
	return n
}

// calloutOf is the class of a paragraph that begins with these bold words.
func calloutOf(text string) string {
	for _, c := range []struct{ begins, class string }{
		{"**Verdict", "verdict"}, {"**This run", "notice"}, {"**This sweep", "notice"}, {"**This study", "notice"}, {"**Synthetic data", "notice"},
	} {
		if strings.HasPrefix(text, c.begins) {
			return c.class
		}
	}
	return ""
}

// Table writes a table in a box of its own, so that a wide one scrolls and the page does not.
func (r *pageRenderer) Table(lines []string) int {
	header, delimiters := tableCells(lines[0]), tableCells(lines[1])
	right := make([]bool, len(header))
	for i, d := range delimiters[:min(len(delimiters), len(header))] {
		right[i] = strings.HasSuffix(d, ":")
	}
	class := "table"
	if strings.Join(header, "") == "" {
		class += " facts" // names and their values
	}
	fmt.Fprintf(&r.body, "<div class=\"%s\">\n<table>\n<thead>\n", class)
	r.row("th", header, right)
	r.body.WriteString("</thead>\n<tbody>\n")
	n := 2
	for ; n < len(lines) && strings.HasPrefix(lines[n], "|"); n++ {
		r.row("td", tableCells(lines[n]), right)
	}
	r.body.WriteString("</tbody>\n</table>\n</div>\n")
	return n
}

func (r *pageRenderer) row(tag string, cells []string, right []bool) {
	r.body.WriteString("<tr>\n")
	for i := range right { // a row has as many cells as its header
		cell, attributes := "", ""
		if i < len(cells) {
			cell = cells[i]
		}
		if right[i] {
			attributes = ` align="right"`
		}
		if class := wordClass(cell); class != "" {
			attributes += fmt.Sprintf(` class="%s"`, class)
		}
		fmt.Fprintf(&r.body, "<%s%s>%s</%s>\n", tag, attributes, r.inline(cell), tag)
	}
	r.body.WriteString("</tr>\n")
}

// wordClass is the class of a cell that holds a verdict or a severity and nothing else.
func wordClass(cell string) string {
	known := []string{"better", "worse", "not separable", "same scores", "warning", "stop", "note", "failed"}
	if slices.Contains(known, cell) {
		return "word " + strings.ReplaceAll(cell, " ", "-")
	}
	return ""
}

func isDelimiterRow(line string) bool {
	return strings.HasPrefix(line, "|") && strings.Contains(line, "---") && strings.Trim(line, "|-: ") == ""
}

// tableCells cuts a row at its bars, those behind a backslash excepted.
func tableCells(line string) []string {
	line = strings.TrimPrefix(strings.TrimSpace(line), "|")
	var cells []string
	var cell strings.Builder
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\' && i+1 < len(line):
			if line[i+1] != '|' {
				cell.WriteByte('\\')
			}
			i++
			cell.WriteByte(line[i])
		case line[i] == '|':
			cells = append(cells, strings.TrimSpace(cell.String()))
			cell.Reset()
		default:
			cell.WriteByte(line[i])
		}
	}
	if rest := strings.TrimSpace(cell.String()); rest != "" {
		cells = append(cells, rest)
	}
	return cells
}

// writeContents lists the headings; those of the third level only while there are few.
func (r *pageRenderer) writeContents(page *bytes.Buffer) {
	const least, most = 3, 40
	if len(r.contents) < least {
		return
	}
	page.WriteString("<nav aria-label=\"Contents\">\n<details open>\n<summary>Contents</summary>\n<ul>\n")
	for _, e := range r.contents {
		if e.level == 2 || len(r.contents) <= most {
			fmt.Fprintf(page, "<li class=\"level%d\"><a href=\"#%s\">%s</a></li>\n", e.level, e.id, e.html)
		}
	}
	page.WriteString("</ul>\n</details>\n</nav>\n")
}

// plot puts a picture into the page, as SVG where there is one.
func (r *pageRenderer) plot(name, alt string) string {
	if stem, ok := strings.CutSuffix(name, ".png"); ok {
		if svg, err := r.read(stem + ".svg"); err == nil {
			if at := bytes.Index(svg, []byte("<svg")); at >= 0 {
				return fmt.Sprintf("<span class=\"plot\" role=\"img\" aria-label=\"%s\">%s</span>", alt, bytes.TrimSpace(svg[at:]))
			}
		}
	}
	data, err := r.read(name)
	if err != nil {
		return fmt.Sprintf("<em>%s is not there.</em>", html.EscapeString(name))
	}
	return fmt.Sprintf("<span class=\"plot\"><img alt=\"%s\" src=\"data:image/png;base64,%s\"></span>", alt, base64.StdEncoding.EncodeToString(data))
}

// pageOf is where a link of a report leads in its page: to pages.
func pageOf(destination string) string {
	if at, ok := strings.CutSuffix(destination, "/"+ReportFile); ok && !strings.Contains(destination, "://") {
		return at + "/" + HtmlFile
	}
	return destination
}

const ReportFile = "report.md"

// ReportPath is where a run's or a sweep's report stands.
func ReportPath(dir string) string { return filepath.Join(dir, ReportFile) }
