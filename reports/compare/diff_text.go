package compare

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"fulcrum/internal/list"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
)

// WriteText writes the diff for a console of so many columns (0: any number): one table for what is computed with, one each
// for data and code, and last what changes no result.
func (d Diff) WriteText(w io.Writer, columns int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A  %s\nB  %s\n", d.A, d.B)
	files := d.A.Kind == diffConfig || d.B.Kind == diffConfig
	for _, part := range []struct {
		title string
		list  []Difference
		told  bool // also when nothing differs
	}{
		{"settings", d.Settings, true},
		{"data", d.Data, !files},
		{"code and machine", d.Code, !files},
		{"paths, logging, hydra.* and vars, which change no result themselves", d.Elsewhere, false},
	} {
		switch {
		case len(part.list) > 0:
			fmt.Fprintf(&b, "\n%s: %d %s\n", part.title, len(part.list), page.Verb(len(part.list), "differs", "differ"))
			writeDifferences(&b, part.list, columns)
		case part.told && len(d.Unknown) == 0:
			fmt.Fprintf(&b, "\n%s: the same\n", part.title)
		}
	}
	for _, only := range []struct {
		side string
		jobs []string
	}{{"A", d.OnlyA}, {"B", d.OnlyB}} {
		if len(only.jobs) > 0 {
			fmt.Fprintf(&b, "\njobs of %s alone: %d\n", only.side, len(only.jobs))
			writeJobs(&b, only.jobs)
		}
	}
	for i, sentence := range d.Unknown {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintln(&b, stdout.Fold("note: "+sentence, columns, 4))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String is the path with what it is.
func (p DiffPath) String() string {
	if p.State == "" {
		return fmt.Sprintf("%s (%s)", p.Path, p.Kind)
	}
	return fmt.Sprintf("%s (%s, %s)", p.Path, p.Kind, p.State)
}

// Verdict counts what differs in one line: "4 differences: 2 settings, 1 fact of the data, 1 of the code".
func (d Diff) Verdict() string {
	if d.Same {
		return "no setting that affects results differs"
	}
	var parts []string
	add := func(n int, one, many string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, page.Verb(n, one, many)))
		}
	}
	add(len(d.Settings), "setting", "settings")
	add(len(d.Data), "fact of the data", "facts of the data")
	add(len(d.Code), "fact of code and machine", "facts of code and machine")
	add(len(d.OnlyA)+len(d.OnlyB), "job without a counterpart", "jobs without a counterpart")
	return "what differs: " + strings.Join(parts, ", ")
}

// writeDifferences writes aligned columns: key, A, B and, in a sweep, in how many pairs of jobs.
func writeDifferences(b *strings.Builder, list []Difference, columns int) {
	keys := 0
	for _, one := range list {
		keys = max(keys, len(one.Key))
	}
	each := shownRunes
	if columns > 0 {
		each = min(each, max((columns-keys-len("    …  …"))/2, shownBefore+4))
	}
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  key\tA\tB\t")
	for _, one := range list {
		left, right := shown(one.A, one.B, each)
		fmt.Fprintf(w, "  %s\t%s\t%s\t", one.Key, left, right)
		if one.Via != "" {
			fmt.Fprintf(w, " via %s", one.Via)
		}
		if one.Jobs > 0 {
			fmt.Fprintf(w, " in %s of jobs", page.Plural(one.Jobs, "pair"))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(b, strings.TrimRight(line, " \n"))
	}
}

const (
	shownRunes  = 56 // of a value in a table, at most
	shownBefore = 12 // of them, before the first that differs
	shownJobs   = 12
)

func writeJobs(b *strings.Builder, jobs []string) {
	for i, job := range jobs {
		if i == shownJobs {
			fmt.Fprintf(b, "  and %d more\n", len(jobs)-i)
			return
		}
		fmt.Fprintf(b, "  %s\n", job)
	}
}

// shown are two values as a table shows them, so many runes of each. Of long ones it shows the part in which they differ.
func shown(a, b *string, runes int) (left, right string) {
	if a == nil || b == nil {
		return cut(a, 0, runes), cut(b, 0, runes)
	}
	x, y := []rune(*a), []rune(*b)
	at := list.Common(x, y)
	from := 0
	if at > runes-shownBefore {
		from = at - shownBefore
	}
	return cut(a, from, runes), cut(b, from, runes)
}

// cut is a value from a rune on, at most so many runes of it.
func cut(value *string, from, most int) string {
	if value == nil {
		return "(absent)"
	}
	runes := []rune(*value)
	text := runes[min(from, len(runes)):]
	head, tail := "", ""
	if from > 0 {
		head = "…"
	}
	if len(text) > most {
		text, tail = text[:most], "…"
	}
	return head + string(text) + tail
}
