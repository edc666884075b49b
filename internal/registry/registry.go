// Package registry is a named table of things a user can choose: phases, policies, rewards, sweepers.
// A miss lists the names and suggests the nearest one. Tables are built by ordinary functions
// (experiments/workload, experiments/tasks and so on), never in init().
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hbollon/go-edlib"
)

// Table maps names to entries of one kind.
type Table[T any] struct {
	kind    string
	entries map[string]T
}

// New returns an empty table; kind ("phase", "reward") is used in messages.
func New[T any](kind string) *Table[T] { return &Table[T]{kind: kind, entries: map[string]T{}} }

// Add registers v under name. A name added twice is a programming error and panics.
func (t *Table[T]) Add(name string, v T) {
	if _, dup := t.entries[name]; dup {
		panic(fmt.Sprintf("registry: %s %q added twice", t.kind, name))
	}
	t.entries[name] = v
}

// Change lets change alter the entry called name. A name that is missing is a programming error and panics.
func (t *Table[T]) Change(name string, change func(*T)) {
	v, ok := t.entries[name]
	if !ok {
		panic(fmt.Sprintf("registry: no %s %q to change", t.kind, name))
	}
	change(&v)
	t.entries[name] = v
}

// Get returns the entry called name, or an error that lists the names and the nearest one.
func (t *Table[T]) Get(name string) (T, error) {
	if v, ok := t.entries[name]; ok {
		return v, nil
	}
	var zero T
	return zero, Unknown(t.kind, name, t.Names())
}

// Names returns the registered names in alphabetical order.
func (t *Table[T]) Names() []string { return slices.Sorted(maps.Keys(t.entries)) }

// Unknown is the error for a name that is not in names: it lists them and the nearest one.
func Unknown(kind, name string, names []string) error {
	return fmt.Errorf("unknown %s %q%s: want one of %s", kind, name, DidYouMean(Suggest(name, names)), strings.Join(names, ", "))
}

// DidYouMean is what Nearest or Suggest found as a part of a message, " (did you mean NAME?)", or nothing.
func DidYouMean(near string, ok bool) string {
	if !ok {
		return ""
	}
	return " (did you mean " + near + "?)"
}

// Nearest returns the name closest to the given one in edit distance (a swap of neighbours counts
// one), when it is close enough to be a likely typing error: at most a third of the longer name,
// and at least two edits for names of five letters or more.
func Nearest(name string, names []string) (string, bool) {
	if len(name) > 200 { // no name of ours; its distance to each would take long
		return "", false
	}
	best, bestDist := "", -1
	for _, n := range names {
		d := edlib.OSADamerauLevenshteinDistance(strings.ToLower(name), strings.ToLower(n))
		if bestDist < 0 || d < bestDist || d == bestDist && n < best {
			best, bestDist = n, d
		}
	}
	if bestDist < 0 {
		return "", false
	}
	longest := max(len(name), len(best))
	limit := max(longest/3, 1)
	if longest >= 5 {
		limit = max(limit, 2)
	}
	return best, bestDist <= limit
}

// Suggest returns the nearest name, else the only one that begins with the given one (qwen for qwen2_5_vl) or holds
// it as a word of its own.
func Suggest(name string, names []string) (string, bool) {
	if near, ok := Nearest(name, names); ok {
		return near, true
	}
	const telling = 3 // letters
	if len(name) < telling {
		return "", false
	}
	for _, fits := range []func(full, part string) bool{strings.HasPrefix, func(full, part string) bool {
		return strings.Contains("_"+full+"_", "_"+part+"_")
	}} {
		found, n := "", 0
		for _, full := range names {
			if fits(strings.ToLower(full), strings.ToLower(name)) {
				found, n = full, n+1
			}
		}
		if n == 1 {
			return found, true
		}
	}
	return "", false
}
