package page

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"fulcrum/internal/list"
)

// Markup is Markdown within a line, as the cells of a report are written.
type Markup string

// Table is rows under named columns: for a report (Markdown), a terminal (Console), a paper (LaTeX) and programs (CSV,
// JSON, Parquet). A cell is nil (nothing), a bool, an int, a float64, a string of plain text, or Markup.
type Table struct {
	Title   string // plain text: the heading that it stands under
	Named   int    // so many columns tell a row from the others, and stand in each part of a wide table; 0: the first
	Columns []Column
	Rows    [][]any         // as many cells as columns; fewer: the rest is nothing
	Stream  iter.Seq[[]any] // rows that are too many to be held, instead of Rows; nil: none
}

// Column is what stands over the cells of a table, and on which side they stand.
type Column struct {
	Name  Markup
	Right bool // aligned to the right, as numbers are
}

// NewTable makes a table of Markdown cells; columns whose header starts with ">" are right-aligned.
func NewTable(header []string, rows [][]string) *Table {
	t := &Table{}
	for _, h := range header {
		name, right := strings.CutPrefix(h, ">")
		t.Columns = append(t.Columns, Column{Markup(name), right})
	}
	for _, row := range rows {
		t.Rows = append(t.Rows, list.Map(row, func(cell string) any { return Markup(cell) }))
	}
	return t
}

// Lines are the lines of a table with one for each thing, made column by column: what Document.Table and NewTable take.
type Lines[T any] struct {
	Header []string
	Rows   [][]string
	things []T
}

// LinesOf begins a table with a line for each thing and no column yet.
func LinesOf[T any](things []T) *Lines[T] {
	return &Lines[T]{Rows: make([][]string, len(things)), things: things}
}

// Column adds a column: what stands over it, and the cell of each thing.
func (l *Lines[T]) Column(head string, cell func(T) string) {
	l.Header = append(l.Header, head)
	for i, thing := range l.things {
		l.Rows[i] = append(l.Rows[i], cell(thing))
	}
}

// NewData makes a table without rows whose columns are named in plain text, as programs read them.
func NewData(title string, names ...string) *Table {
	return &Table{Title: title, Columns: list.Map(names, func(name string) Column { return Column{Name: Markup(Plain(name))} })}
}

func Texts(row []string) []any {
	return list.Map(row, func(text string) any { return text })
}

func (t *Table) Names() []string {
	return list.Map(t.Columns, func(c Column) string { return PlainText(c.Name) })
}

func (t *Table) Texts() [][]string {
	rows := [][]string{}
	for row := range t.rows() {
		rows = append(rows, list.Map(row, asRead))
	}
	return rows
}

func (t *Table) rows() iter.Seq[[]any] {
	if t.Stream != nil {
		return t.Stream
	}
	return slices.Values(t.Rows)
}

func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("|")
	for _, c := range t.Columns {
		b.WriteString(" " + string(c.Name) + " |")
	}
	b.WriteString("\n|")
	for _, c := range t.Columns {
		if c.Right {
			b.WriteString("---:|")
		} else {
			b.WriteString("---|")
		}
	}
	b.WriteString("\n")
	for row := range t.rows() {
		b.WriteString("|")
		for _, cell := range row {
			b.WriteString(" " + string(markup(cell)) + " |")
		}
		b.WriteString("\n")
		if err := flush(w, &b); err != nil {
			return err
		}
	}
	return flush(w, &b)
}

func flush(w io.Writer, b *strings.Builder) error {
	_, err := io.WriteString(w, b.String())
	b.Reset()
	return err
}

func markup(cell any) Markup {
	if m, ok := cell.(Markup); ok {
		return m
	}
	return Markup(Plain(shown(cell)))
}

// shown is a cell as a person reads it: numbers with four significant digits.
func shown(cell any) string {
	if x, ok := cell.(float64); ok {
		return Sig(x, 4)
	}
	return exact(cell)
}

// exact is a cell as a program reads it: the shortest decimals that read back to the same number.
func exact(cell any) string {
	switch v := cell.(type) {
	case nil:
		return ""
	case Markup:
		return PlainText(v)
	case string:
		return v
	case float64:
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(v, 'g', -1, 64)), "+")
	}
	return fmt.Sprint(cell)
}

// PlainText returns what a reader sees of Markdown within a line.
func PlainText(m Markup) string {
	if !strings.ContainsAny(string(m), "\\`*_&<[") {
		return string(m)
	}
	const ahead = "x " // so that the text is a paragraph, whatever it begins with
	source := []byte(ahead + strings.ReplaceAll(string(m), `\|`, "|"))
	var b strings.Builder
	tree := goldmark.DefaultParser().Parse(text.NewReader(source))
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // returns no error
		switch n := n.(type) {
		case *ast.CodeSpan:
			if entering {
				for c := n.FirstChild(); c != nil; c = c.NextSibling() {
					b.Write(c.(*ast.Text).Value(source))
				}
			}
			return ast.WalkSkipChildren, nil
		case *ast.RawHTML:
			if raw := string(n.Segments.Value(source)); entering && raw != "<br>" {
				b.WriteString(raw)
			} else if entering {
				b.WriteString(" ")
			}
		case *ast.Text:
			if entering {
				b.WriteString(unescaped(n.Value(source)))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimPrefix(b.String(), ahead)
}
