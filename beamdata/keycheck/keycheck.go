// Package keycheck counts the keys of records that nothing reads, so that a misspelt one is named.
//
//	keys := keycheck.New("beams.json", "trajectory", []string{"vqa_correct"}, []string{"temperature"})
//	keys.See([]byte("vqa_corect"), func() int { return 12 })
//	keys.Unknown()      // one: vqa_corect, nearest vqa_correct, first in line 12
package keycheck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/reports/page"
)

// Unknown is a key that records hold and nothing reads.
type Unknown struct {
	File    string `json:"file"`
	Object  string `json:"object"` // what holds it: record, trajectory, …
	Key     string `json:"key"`
	Nearest string `json:"nearest,omitempty"` // of the keys that are read; "" where none is near
	Count   int    `json:"count"`
	First   int    `json:"first"` // line, or row, of the first one
}

func (u Unknown) String() string {
	first := "the first in"
	if u.Count == 1 {
		first = "in"
	}
	text := fmt.Sprintf("%s: unknown key %.60q in %s, %s line %d", u.File, u.Key, page.Plural(u.Count, u.Object), first, u.First)
	if u.Nearest != "" {
		return text + ": did you mean " + u.Nearest + "? It is not read"
	}
	return text + ": it is not read"
}

// Keys counts the keys of one kind of object of a file.
type Keys struct {
	file, object string
	read         []string
	known        map[string]bool
	seen         map[string]*Unknown
	also         map[string]string // customary other names of keys that are read
}

// Also says under which other names keys are known elsewhere, for messages.
func (k *Keys) Also(names map[string]string) *Keys {
	k.also = names
	return k
}

// Found says which unknown keys there are and what they may stand for: the keys candidates, ids (did you mean
// pointer_candidates for candidates?). It is "no keys" where there is none.
func (k *Keys) Found() string {
	const most = 8
	var names, hints []string
	for _, u := range k.Unknown() {
		names = append(names, fmt.Sprintf("%.40s", u.Key))
		if u.Nearest != "" {
			hints = append(hints, fmt.Sprintf("%s for %.40s", u.Nearest, u.Key))
		}
	}
	if len(names) == 0 {
		return "no keys"
	}
	if len(names) > most {
		names = append(names[:most], "…")
	}
	text := "the keys " + strings.Join(names, ", ")
	if len(names) == 1 {
		text = "the key " + names[0]
	}
	if len(hints) > 0 {
		text += " (did you mean " + strings.Join(hints, ", ") + "?)"
	}
	return text
}

// most bounds the different keys that are counted: a file may use keys as values.
const most = 100

// New returns a counter for the objects of a file. read are the keys in use, extra the known keys without use.
func New(file, object string, read, extra []string) *Keys {
	k := &Keys{file: file, object: object, known: map[string]bool{}, seen: map[string]*Unknown{}}
	k.Know(read, extra)
	return k
}

// Know adds keys that are known, to those counted so far too.
func (k *Keys) Know(read, extra []string) {
	k.read = append(k.read, read...)
	for _, name := range slices.Concat(read, extra) {
		k.known[name] = true
	}
}

// See counts a key. line is asked once for each that is unknown.
func (k *Keys) See(key []byte, line func() int) {
	if k.known[string(key)] {
		return
	}
	if u := k.seen[string(key)]; u != nil {
		u.Count++
		return
	}
	if len(k.seen) < most {
		k.seen[string(key)] = &Unknown{File: k.file, Object: k.object, Key: string(key), Count: 1, First: line()}
	}
}

// Unknown returns what was counted, the most frequent first.
func (k *Keys) Unknown() []Unknown {
	var out []Unknown
	for _, name := range slices.Sorted(maps.Keys(k.seen)) {
		if !k.known[name] {
			u := *k.seen[name]
			u.Nearest = cmp.Or(k.also[strings.ToLower(name)], Nearest(name, k.read))
			out = append(out, u)
		}
	}
	slices.SortStableFunc(out, func(a, b Unknown) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// Like returns the unknown key that probably stands for name, or "".
func (k *Keys) Like(name string) string {
	for _, u := range k.Unknown() {
		if u.Nearest == name {
			return u.Key
		}
	}
	return ""
}

// Nearest returns the name that key is most likely to stand for: one that is a typing error away, else the one that
// begins alike (vqa_accuracy, vqa_acc_score); or "".
func Nearest(key string, names []string) string {
	if near, ok := registry.Nearest(key, names); ok {
		return near
	}
	const alike = 5 // letters
	best, length := "", alike-1
	for _, name := range names {
		if n := list.Common([]byte(key), []byte(name)); n > length {
			best, length = name, n
		}
	}
	return best
}
