package reports

import (
	"fmt"
	"strings"
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
