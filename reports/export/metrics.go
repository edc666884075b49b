package export

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Metrics is a row for each line of metrics.jsonl of every run, read while it is written out: a run may have a million.
// A torn last line is left out; another damaged line is an error, and so is a file that changes in between.
func Metrics(folders []Folder) (*page.Table, error) {
	known := map[string]bool{}
	for _, f := range folders {
		if err := record.EachRow(f.Dir, func(row record.Row) error {
			for name := range row.Fields {
				known[name] = true
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	names := slices.Collect(maps.Keys(known))
	record.NewMetricOrder().Sort(names)
	fixed := []string{"run", "kind", "phase", "epoch", "step", "global_step", "time"}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(fixed, name) })
	t := page.NewData("Metrics", append(fixed, names...)...)
	t.Stream = func(yield func([]any) bool) {
		for _, f := range folders {
			stopped := errors.New("no more rows are wanted")
			err := record.EachRow(f.Dir, func(r record.Row) error {
				row := []any{filepath.ToSlash(f.Dir), r.Kind, r.Phase, r.Epoch, r.Step, r.GlobalStep, r.Time}
				if !yield(append(row, list.Map(names, func(name string) any { return fieldCell(r, name) })...)) {
					return stopped
				}
				return nil
			})
			if err != nil { // it was read whole a moment ago; what is wanted no more needs no word either
				return
			}
		}
	}
	return t, nil
}

// fieldCell is a field of a row as a cell; a list is text, as JSON writes it.
func fieldCell(r record.Row, name string) any {
	value, there := r.Fields[name]
	if x, ok := r.Number(name); ok {
		return x
	}
	switch v := value.(type) {
	case bool, string:
		return v
	}
	if !there {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return string(text)
}
