package page

import (
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Console writes the table for a terminal, with a line under its header only.
func (t *Table) Console(w io.Writer) error {
	header := make([]string, len(t.Columns))
	align := tw.CellAlignment{PerColumn: make([]tw.Align, len(t.Columns))}
	for i, c := range t.Columns {
		header[i], align.PerColumn[i] = PlainText(c.Name), tw.AlignLeft
		if c.Right {
			align.PerColumn[i] = tw.AlignRight
		}
	}
	lines := tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On, ShowFooterLine: tw.Off}
	var buf strings.Builder
	table := tablewriter.NewTable(&buf,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.Border{Left: tw.Off, Right: tw.Off, Top: tw.Off, Bottom: tw.Off},
			Symbols:  tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{Lines: lines, Separators: tw.Separators{BetweenRows: tw.Off, BetweenColumns: tw.Off}},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignmentConfig(align),
		tablewriter.WithRowAlignmentConfig(align),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
	)
	table.Header(header)
	for row := range t.rows() {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = visible(cell)
		}
		if err := table.Append(cells); err != nil {
			return err
		}
	}
	if err := table.Render(); err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(buf.String()) { // the last column is padded too
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return flush(w, &b)
}

// visible is a cell as a person reads it, markup taken off.
func visible(cell any) string {
	if m, ok := cell.(Markup); ok {
		return PlainText(m)
	}
	return shown(cell)
}
