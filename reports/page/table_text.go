//go:build !core

package page

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/parquet"
)

// CSV writes the table with a header (RFC 4180); a cell of nothing is empty. A text that a spreadsheet would compute, as
// it begins with =, +, - or @ and is no number or interval, gets an apostrophe before it.
func (t *Table) CSV(w io.Writer) error { return t.csv(w, defused) }

// CSVAsIs is CSV without a quote before texts that a spreadsheet would compute.
func (t *Table) CSVAsIs(w io.Writer) error { return t.csv(w, func(text string) string { return text }) }

func (t *Table) csv(w io.Writer, text func(string) string) error {
	out := csv.NewWriter(w)
	if err := out.Write(list.Map(t.Names(), text)); err != nil {
		return err
	}
	record := make([]string, len(t.Columns))
	for row := range t.rows() {
		clear(record)
		for i, cell := range row {
			record[i] = exact(cell)
			switch cell.(type) {
			case string, Markup:
				record[i] = text(record[i])
			}
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// defused puts an apostrophe before what a spreadsheet would take for a formula.
func defused(text string) string {
	if len(text) < 2 || !strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return text
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text
	}
	if text[0] != '=' && strings.Trim(text, "0123456789.+-−±eE%[], ()†") == "" { // a gain with its interval
		return text
	}
	return "'" + text
}

// JSON writes the table as one document: an array with an object for each row, keys in the order of the columns.
// Nothing is null; numbers that JSON does not have are the strings nan, inf and -inf.
func (t *Table) JSON(w io.Writer) error {
	names := t.Names()
	keys := make([]string, len(names))
	for i, name := range names {
		if j := slices.Index(names, name); j < i || name == "" { // two columns of a report may have one name
			name = strings.TrimSpace(fmt.Sprintf("%s %d", name, i+1))
		}
		key, err := jsonwords.Marshal(name)
		if err != nil {
			return err
		}
		keys[i] = string(key)
	}
	var b strings.Builder
	b.WriteString("[")
	between := "\n"
	for row := range t.rows() {
		b.WriteString(between + " {")
		between = ",\n"
		for i, key := range keys {
			var cell any
			if i < len(row) {
				cell = row[i]
			}
			value, err := jsonwords.Marshal(jsonValue(cell))
			if err != nil {
				return err
			}
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(key + ": " + string(value))
		}
		b.WriteString("}")
		if err := flush(w, &b); err != nil {
			return err
		}
	}
	b.WriteString("\n]\n")
	return flush(w, &b)
}

// jsonValue is a cell as encoding/json writes it.
func jsonValue(cell any) any {
	switch v := cell.(type) {
	case Markup:
		return PlainText(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return exact(v)
		}
	}
	return cell
}

// Parquet writes the table; a column holds numbers, whole numbers or truth values where all its cells do, else text.
func (t *Table) Parquet(w io.Writer) error {
	fields := list.Map(t.Names(), func(name string) parquet.Field { return parquet.Field{Name: name, Kind: unknownKind} })
	for row := range t.rows() {
		for i, cell := range row {
			fields[i].Kind = wider(fields[i].Kind, cell)
		}
	}
	for i := range fields {
		if fields[i].Kind == unknownKind { // nothing but nothing
			fields[i].Kind = parquet.Text
		}
	}
	return parquet.Write(w, fields, func(yield func([]any) bool) {
		cells := make([]any, len(fields))
		for row := range t.rows() {
			clear(cells)
			for i, cell := range row {
				cells[i] = asKind(fields[i].Kind, cell)
			}
			if !yield(cells) {
				return
			}
		}
	})
}

const unknownKind = parquet.Kind(-1)

// wider is the kind of a column that holds cells of kind k and this one.
func wider(k parquet.Kind, cell any) parquet.Kind {
	own := parquet.Text
	switch cell.(type) {
	case nil:
		return k
	case bool:
		own = parquet.Bool
	case int:
		own = parquet.Whole
	case float64:
		own = parquet.Number
	}
	numbers := k == parquet.Whole && own == parquet.Number || k == parquet.Number && own == parquet.Whole
	switch {
	case k == unknownKind || k == own:
		return own
	case numbers:
		return parquet.Number
	}
	return parquet.Text
}

// asKind is a cell as a value of a column's kind.
func asKind(k parquet.Kind, cell any) any {
	switch v := cell.(type) {
	case nil:
		return nil
	case int:
		if k == parquet.Number {
			return float64(v)
		}
	}
	if k == parquet.Text {
		return exact(cell)
	}
	return cell
}

// LaTeX writes the table as a tabular environment with booktabs' rules, its title as a comment.
func (t *Table) LaTeX(w io.Writer) error {
	var b strings.Builder
	if t.Title != "" {
		b.WriteString("% " + strings.Join(strings.Fields(t.Title), " ") + "\n")
	}
	b.WriteString("\\begin{tabular}{")
	for _, c := range t.Columns {
		if c.Right {
			b.WriteString("r")
		} else {
			b.WriteString("l")
		}
	}
	b.WriteString("}\n\\toprule\n")
	line := func(cells []string) { b.WriteString(strings.Join(cells, " & ") + " \\\\\n") }
	line(list.Map(t.Names(), Latex))
	b.WriteString("\\midrule\n")
	for row := range t.rows() {
		cells := make([]string, len(t.Columns))
		for i, cell := range row {
			cells[i] = Latex(asRead(cell))
		}
		line(cells)
		if err := flush(w, &b); err != nil {
			return err
		}
	}
	b.WriteString("\\bottomrule\n\\end{tabular}\n")
	return flush(w, &b)
}

// Latex makes text safe in LaTeX: its special characters, and the signs of our tables that need math.
func Latex(s string) string {
	return strings.NewReplacer(`\`, `\textbackslash{}`, "&", `\&`, "%", `\%`, "$", `\$`, "#", `\#`, "_", `\_`, "{", `\{`, "}", `\}`,
		"~", `\textasciitilde{}`, "^", `\textasciicircum{}`, "<", `\textless{}`, ">", `\textgreater{}`, "±", `$\pm$`, "−", `$-$`,
		"≤", `$\le$`, "≥", `$\ge$`, "×", `$\times$`, "–", "--", "…", `\dots{}`, "β", `$\beta$`, "τ", `$\tau$`, "ε", `$\epsilon$`,
		"→", `$\to$`, "\n", " ").Replace(s)
}
