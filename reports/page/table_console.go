package page

import (
	"io"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"fulcrum/internal/list"
	"fulcrum/internal/visible"
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
		if err := table.Append(list.Map(row, asRead)); err != nil {
			return err
		}
	}
	if err := table.Render(); err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(buf.String()) { // the last column is padded too
		if line = strings.TrimRight(line, " \n"); line != "" { // a row may have nothing in this part of a wide table
			b.WriteString(line + "\n")
		}
	}
	return flush(w, &b)
}

// ConsoleWithin writes the table for a terminal of so many columns (0: any number). One that is wider comes in parts below
// each other, each with the columns that name a row.
func (t *Table) ConsoleWithin(w io.Writer, width int) error {
	for i, part := range t.parts(width) {
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		if err := part.Console(w); err != nil {
			return err
		}
	}
	return nil
}

// parts cuts a table by columns so that each part fits into width, as far as its columns allow.
func (t *Table) parts(width int) []*Table {
	wide := list.Map(t.Columns, func(c Column) int { return twwidth.Width(PlainText(c.Name)) + 2 })
	for row := range t.rows() {
		for i, cell := range row {
			wide[i] = max(wide[i], twwidth.Width(asRead(cell))+2)
		}
	}
	named, names := max(t.Named, 1), 0 // and their width
	for _, w := range wide[:min(named, len(wide))] {
		names += w
	}
	var parts [][]int // of columns
	used := 0
	for i := 0; i < len(t.Columns); {
		next, wanted := i+1, wide[i]
		for next < len(t.Columns) && t.Columns[next].Name == "" { // it belongs to the column before it
			wanted, next = wanted+wide[next], next+1
		}
		if i == 0 {
			parts = append(parts, nil)
		} else if width > 0 && used+wanted > width && len(parts[len(parts)-1]) > named {
			parts, used = append(parts, slices.Clone(parts[0][:named])), names
		}
		for ; i < next; i++ {
			parts[len(parts)-1] = append(parts[len(parts)-1], i)
		}
		used += wanted
	}
	if len(parts) < 2 {
		return []*Table{t}
	}
	var out []*Table
	for _, columns := range parts {
		part := &Table{Title: t.Title, Columns: list.Map(columns, func(i int) Column { return t.Columns[i] })}
		for row := range t.rows() {
			cells := make([]any, len(columns))
			for k, i := range columns {
				if i < len(row) {
					cells[k] = row[i]
				}
				if room := width - names - 2; i >= named && wide[i] > room && cells[k] != nil && room > 1 {
					cells[k] = Clip(asRead(cells[k]), room)
				}
			}
			part.Rows = append(part.Rows, cells)
		}
		out = append(out, part)
	}
	return out
}

// asRead is a cell as a person reads it, markup taken off.
func asRead(cell any) string { return visible.Text(shown(cell)) }
