package texts

import (
	"fmt"
	"slices"
)

// Fits reports whether a file's columns are those of sources with targets.
func Fits(columns []string) bool {
	return slices.ContainsFunc(pairs(), func(p [2]string) bool { return slices.Contains(columns, p[0]) && slices.Contains(columns, p[1]) })
}

func (o Options) Named() bool { return o.Source != nil || o.Target != nil || o.ID != nil }

// Inspect returns what a file of texts holds, as names with values, and the first fault for which a run would refuse it.
func (o Options) Inspect(path string) (facts [][2]string, fault error) {
	f, c, err := o.open(path)
	if err != nil {
		return nil, err
	}
	add := func(name, format string, args ...any) {
		facts = append(facts, [2]string{name, fmt.Sprintf(format, args...)})
	}
	var faulty, source, target int
	for row := range int64(f.Len()) {
		r, err := f.read(row, c)
		if err != nil {
			if faulty++; fault == nil {
				fault = fmt.Errorf("%s: %w", f.at(row), err)
			}
			continue
		}
		source, target = source+len(r.source), target+len(r.target)
	}
	n := max(f.Len()-faulty, 1)
	add("records", "%d", f.Len())
	add("source", "column %s, %d bytes in the mean", c.source, source/n)
	add("target", "column %s, %d bytes in the mean", c.target, target/n)
	if faulty > 0 {
		add("that do not decode", "%d", faulty)
	}
	for _, u := range f.unread(c) {
		add("unknown key", "%s", u)
	}
	return facts, fault
}
