package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
	"fulcrum/internal/visible"
)

// Files of a folder with a report.
const (
	ReportFile = "report.md"
	HtmlFile   = "report.html"
)

// ReportPath returns where the report of a run or sweep stands.
func ReportPath(dir string) string { return filepath.Join(dir, ReportFile) }

//go:embed html.css
var htmlStyle string

// WriteText writes a report's markdown as report.md of dir, and the same as report.html: one file with the plots
// of dir in it, which needs no network.
func WriteText(dir, markdown string) error { return WriteLively(dir, markdown, Lively{}) }

// WriteLively is WriteText for a page with a script.
func WriteLively(dir, markdown string, more Lively) error {
	root, err := os.OpenRoot(dir) // a folder from elsewhere may hold links to files that are none of its report's
	if err != nil {
		return err
	}
	defer root.Close()
	page := LivelyHTML(markdown, func(name string) ([]byte, error) { return regular.ReadIn(root, filepath.FromSlash(name)) }, more)
	if err := atomicfile.Write(filepath.Join(dir, ReportFile), []byte(visible.Text(markdown)), 0o644); err != nil {
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
// names; a PNG with an SVG of the same name beside it is shown as that. Raw HTML is shown as text, except <br>. The sections
// behind the first rule (Document.Fold) are closed until a reader opens them.
func HTML(markdown string, read func(name string) ([]byte, error)) []byte {
	return LivelyHTML(markdown, read, Lively{})
}

// Lively is a script that adds to a page, with its style and data. The page's policy lets this script run and no other.
type Lively struct {
	Style, Script []byte
	Data          []byte   // JSON without <, as encoding/json writes it
	Draws         []string // names of the plots that it draws itself: the page shows their files where no script runs
}

// policy is what a page with this script may load and run.
func (m Lively) policy() string {
	const none = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
	if m.Script == nil {
		return none
	}
	sum := sha256.Sum256(m.Script)
	return none + " blob:; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

const dataTag, dataEnd = `<script type="application/json">`, "</script>"

// ReadData reads into to what the script of the report's page in dir draws; nothing where there is none, or a damaged one.
func ReadData(dir string, to any) {
	text, _ := regular.ReadDocument(filepath.Join(dir, HtmlFile))
	_, data, _ := bytes.Cut(text, []byte(dataTag))
	data, _, _ = bytes.Cut(data, []byte(dataEnd))
	_ = jsonwords.Unmarshal(data, to)
}

// LivelyHTML is HTML for a page with a script.
func LivelyHTML(markdown string, read func(name string) ([]byte, error), more Lively) []byte {
	r, body := rendered(visible.Text(markdown), read, more.Draws)
	var page bytes.Buffer
	fmt.Fprintf(&page, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="%s">
<title>%s</title>
<style>
%s%s</style>
</head>
<body>
`, more.policy(), html.EscapeString(r.title), htmlStyle, more.Style)
	r.writeContents(&page)
	fmt.Fprintf(&page, "<main>\n%s</main>\n", body)
	if more.Script != nil {
		fmt.Fprintf(&page, "%s%s%s\n<script>%s</script>\n", dataTag, more.Data, dataEnd, more.Script)
	}
	page.WriteString("</body>\n</html>\n")
	return []byte(visible.Text(page.String()))
}

// Fragment renders a report as HTML for another page, which draws the plots of these names where data-plot says. Foreign text in it stays
// text.
func Fragment(markdown string, plots ...string) string {
	_, body := rendered(markdown, func(string) ([]byte, error) { return nil, os.ErrNotExist }, plots)
	return string(body)
}

// rendered returns a report's HTML and what its page needs besides.
func rendered(markdown string, read func(name string) ([]byte, error), draws []string) (*pageRenderer, []byte) {
	r := &pageRenderer{read: read, draws: draws, ids: map[string]int{}}
	md := goldmark.New(
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(r, 100))),
	)
	source := []byte(markdown)
	tree := md.Parser().Parse(text.NewReader(source))
	fold(tree)
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // annotate returns no error
		if entering {
			r.annotate(n, source)
		}
		return ast.WalkContinue, nil
	})
	var body bytes.Buffer
	_ = md.Renderer().Render(&body, source, tree)                             // a buffer takes every write
	return r, bytes.ReplaceAll(body.Bytes(), []byte("± "), []byte("±\u00a0")) // an error stays on its line in a narrow cell
}

// pageRenderer adds to goldmark what our pages have besides: anchors, classes, boxes around tables, plots.
type pageRenderer struct {
	read     func(name string) ([]byte, error)
	draws    []string
	title    string
	contents []contentsEntry
	ids      map[string]int // of headings, by how often they were wanted
}

type contentsEntry struct {
	level     int
	id, words string
}

// annotate gives a node its anchor, class or destination.
func (r *pageRenderer) annotate(n ast.Node, source []byte) {
	switch n := n.(type) {
	case *ast.Heading:
		words := wordsOf(n, source)
		if n.Level == 1 && r.title == "" {
			r.title = words
		}
		id := r.id(words)
		if n.Level == 2 || n.Level == 3 && n.Parent().Kind() != folded {
			r.contents = append(r.contents, contentsEntry{n.Level, id, words})
		}
		n.SetAttributeString("id", []byte(id))
	case *ast.Paragraph:
		if class := calloutOf(string(n.Lines().Value(source))); class != "" {
			n.SetAttributeString("class", []byte(class))
		}
	case *tables.TableCell:
		if class := wordClass(wordsOf(n, source)); class != "" {
			n.SetAttributeString("class", []byte(class))
		}
		if row := n.Parent(); row.Kind() == tables.KindTableRow && asks(row.Parent(), source) {
			head := row.Parent().FirstChild().FirstChild()
			for c := n.PreviousSibling(); c != nil; c = c.PreviousSibling() {
				head = head.NextSibling()
			}
			n.SetAttributeString("data-label", []byte(wordsOf(head, source)))
		}
	case *ast.Link:
		n.Destination = []byte(pageOf(string(n.Destination)))
	}
}

func (r *pageRenderer) RegisterFuncs(to renderer.NodeRendererFuncRegisterer) {
	to.Register(tables.KindTable, r.table)
	to.Register(ast.KindImage, r.image)
	to.Register(folded, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		tag := n.(*element).tag
		if !entering {
			tag = "/" + tag
		}
		fmt.Fprintf(w, "<%s>\n", tag)
		return ast.WalkContinue, nil
	})
	to.Register(ast.KindRawHTML, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			raw := string(n.(*ast.RawHTML).Segments.Value(source))
			if raw != "<br>" {
				raw = html.EscapeString(raw)
			}
			w.WriteString(raw)
		}
		return ast.WalkSkipChildren, nil
	})
	to.Register(ast.KindHTMLBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			fmt.Fprintf(w, "<p>%s</p>\n", html.EscapeString(string(n.Lines().Value(source))))
		}
		return ast.WalkSkipChildren, nil
	})
}

// asks says whether a table has a question, or a text to turn into another, in each row.
func asks(table ast.Node, source []byte) bool {
	head := table.FirstChild()
	return head.ChildCount() > 2 && slices.Contains([]string{"question", "text"}, wordsOf(head.FirstChild(), source))
}

// table puts a table into a box of its own, so that a wide one scrolls and the page does not.
func (r *pageRenderer) table(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		w.WriteString("</table>\n</div>\n")
		return ast.WalkContinue, nil
	}
	class := "table"
	if wordsOf(n.FirstChild(), source) == "" {
		class += " facts" // names and their values
	} else if asks(n, source) {
		class += " texts" // whose cells a narrow page puts below each other
	}
	fmt.Fprintf(w, "<div class=\"%s\">\n<table>\n", class)
	return ast.WalkContinue, nil
}

func (r *pageRenderer) image(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkSkipChildren, nil
	}
	file := string(n.(*ast.Image).Destination)
	plot := r.plot(file, html.EscapeString(wordsOf(n, source)))
	if name := strings.TrimSuffix(path.Base(file), path.Ext(file)); slices.Contains(r.draws, name) {
		plot = fmt.Sprintf("<span data-plot=\"%s\"></span><noscript>%s</noscript>", html.EscapeString(name), plot)
	}
	w.WriteString(plot)
	return ast.WalkSkipChildren, nil
}

// element is a <details> with its sections, or the <summary> of one.
type element struct {
	ast.BaseBlock
	tag string
}

var folded = ast.NewNodeKind("Folded")

func (e *element) Kind() ast.NodeKind            { return folded }
func (e *element) Dump(source []byte, level int) { ast.DumpHelper(e, source, level, nil, nil) }

// fold puts each section behind the first rule of a report into an element that a reader opens.
func fold(tree ast.Node) {
	rule := tree.FirstChild()
	for rule != nil && rule.Kind() != ast.KindThematicBreak {
		rule = rule.NextSibling()
	}
	if rule == nil {
		return
	}
	var section *element
	for n := rule.NextSibling(); n != nil; {
		next := n.NextSibling()
		if h, ok := n.(*ast.Heading); ok && h.Level == 2 {
			summary := &element{tag: "summary"}
			section = &element{tag: "details"}
			tree.InsertBefore(tree, n, section)
			section.AppendChild(section, summary)
			summary.AppendChild(summary, n)
		} else if section != nil {
			section.AppendChild(section, n)
		}
		n = next
	}
	tree.RemoveChild(tree, rule)
}

// wordsOf returns the text that a node shows, without markup.
func wordsOf(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.WriteString(unescaped(t.Value(source)))
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

func unescaped(text []byte) string {
	return string(util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(text))))
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

// calloutOf is the class of a paragraph that begins with these bold words.
func calloutOf(text string) string {
	for _, c := range []struct{ begins, class string }{
		{"**Verdict", "verdict"}, {"**This run", "notice"}, {"**This sweep", "notice"}, {"**This study", "notice"},
		{"**Synthetic data", "notice"},
	} {
		if strings.HasPrefix(text, c.begins) {
			return c.class
		}
	}
	return ""
}

// wordClass is the class of a cell that holds a verdict, marked as rough perhaps, or a severity and nothing else.
func wordClass(cell string) string {
	cell = strings.TrimSuffix(cell, " †")
	known := []string{"better", "worse", "not separable", "same scores", "warning", "stop", "note", "failed"}
	if slices.Contains(known, cell) {
		return "word " + strings.ReplaceAll(cell, " ", "-")
	}
	return ""
}

// writeContents lists the headings; those of the third level only while there are few.
func (r *pageRenderer) writeContents(page *bytes.Buffer) {
	const least, most = 3, 40
	if len(r.contents) < least {
		return
	}
	page.WriteString("<nav aria-label=\"Contents\">\n<details>\n<summary>Contents</summary>\n<ul>\n")
	for _, e := range r.contents {
		if e.level == 2 || len(r.contents) <= most {
			fmt.Fprintf(page, "<li class=\"level%d\"><a href=\"#%s\">%s</a></li>\n", e.level, e.id, html.EscapeString(e.words))
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
	class, kind := "plot", "png"
	if strings.HasSuffix(name, ".jpg") {
		class, kind = "picture", "jpeg"
	}
	return fmt.Sprintf("<span class=\"%s\"><img alt=\"%s\" src=\"data:image/%s;base64,%s\"></span>", class, alt, kind,
		base64.StdEncoding.EncodeToString(data))
}

// pageOf is where a link of a report leads in its page: to pages.
func pageOf(destination string) string {
	if at, ok := strings.CutSuffix(destination, "/"+ReportFile); ok && !strings.Contains(destination, "://") {
		return at + "/" + HtmlFile
	}
	return destination
}
