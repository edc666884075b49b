package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"fulcrum/internal/list"
)

// Shares from which a fault is more than mild, or from which there is one.
const (
	// Duplicates is that of a set's queries with the content of another. Real sets ask a few questions twice.
	Duplicates = 0.1
	// Leak is that of held-out queries whose content is trained on: a gain of a point or two may then be memory.
	Leak = 0.02
	// BlankRows is that of queries with the same row of the table: one default question may be asked now and then.
	BlankRows = 0.05
)

// Split is the queries of one set.
type Split struct {
	Name   string // as readers know it: training, validation, held-out
	Trains bool   // its rewards are trained on
	Rows   bool   // its queries are rows of an embedding table
	Of     []Query
}

// Query is one query of a split. Equal contents mean the same question about the same picture; 0 = unknown.
type Query struct {
	ID      int64  // unique in its source
	Name    string // as readers know it; "" = its ID
	Content uint64 // hash of the policy's input
	Group   uint64 // hash of the picture, whose queries a split should keep together; 0 = unknown
}

func (q Query) String() string { return cmp.Or(q.Name, strconv.FormatInt(q.ID, 10)) }

// Overlap looks for queries that stand twice in a set, and for queries of a held-out set (one that does not
// train) that stand in another one: by id, by content and, mildly, by group.
func Overlap(splits []Split) []Fault {
	out := slices.Concat(list.Map(splits, duplicates)...)
	for i, held := range splits {
		if held.Trains {
			continue
		}
		for _, other := range splits[:i] {
			out = append(out, leak(held, other)...)
		}
	}
	return out
}

func (s Split) description() string { return s.Name + " queries" }

func id(q Query) uint64      { return uint64(q.ID) + 1 } // never 0
func content(q Query) uint64 { return q.Content }

// duplicates finds queries of one set with the same id or the same content.
func duplicates(s Split) []Fault {
	if n, a, _ := repeats(s.Of, id); n > 0 {
		return []Fault{{Check: "duplicate_queries", Value: share(n, len(s.Of)),
			Message: fmt.Sprintf("%s stand more than once (query %v, for example): they count double in every mean; drop the "+
				"copies from the file", of(n, len(s.Of), s.description()), a)}}
	}
	n, a, b := repeats(s.Of, content)
	if n == 0 {
		return nil
	}
	why := "copies count double in every mean"
	if s.Rows {
		why += ", or rows of the embedding table are constant"
	}
	return []Fault{graded("duplicate_queries", share(n, len(s.Of)), Duplicates,
		fmt.Sprintf("%s repeat the content of another (queries %v and %v, for example)", of(n, len(s.Of), s.description()), a, b), why)}
}

// repeats counts the queries whose key an earlier query has, and returns the first pair.
func repeats(qs []Query, key func(Query) uint64) (n int, first, second Query) {
	order := list.Filter(qs, func(q Query) bool { return key(q) != 0 })
	slices.SortStableFunc(order, func(a, b Query) int { return cmp.Compare(key(a), key(b)) })
	for i := 1; i < len(order); i++ {
		if key(order[i]) != key(order[i-1]) {
			continue
		}
		if n == 0 || order[i-1].ID < first.ID {
			first, second = order[i-1], order[i]
		}
		n++
	}
	return n, first, second
}

// leak finds queries of a held-out set in another one: the worst kind alone.
func leak(held, other Split) []Fault {
	total := len(held.Of)
	means := "its numbers count what was trained on"
	if !other.Trains {
		means = "the best checkpoint was chosen on them"
	}
	if n, a, _ := shared(held.Of, other.Of, id); n > 0 {
		return []Fault{{Check: "split_leak", Value: share(n, total),
			Message: fmt.Sprintf("%s are %s queries too (query %v, for example): %s; give it other queries", of(n, total, held.description()),
				other.Name, a, means)}}
	}
	if n, a, b := shared(held.Of, other.Of, content); n > 0 {
		advice := "; keep the copies of a query in one set"
		if slices.ContainsFunc(held.Of, func(q Query) bool { return q.Group != 0 }) {
			advice = "; split by question and picture"
		}
		return []Fault{graded("split_leak", share(n, total), Leak,
			fmt.Sprintf("%s have the very content of a %s query under another id (query %v is query %v, for example)",
				of(n, total, held.description()), other.Name, a, b),
			means+advice)}
	}
	if n, _, _ := shared(held.Of, other.Of, func(q Query) uint64 { return q.Group }); n > 0 {
		return []Fault{{Check: "split_leak", Mild: true, Value: share(n, total), Limit: Leak,
			Message: fmt.Sprintf("%s ask about a picture that %s queries ask about too: what is learned of the picture helps there",
				of(n, total, held.description()), other.Name)}}
	}
	return nil
}

// shared counts the queries of held whose key is in other, and returns the first with its twin.
func shared(held, other []Query, key func(Query) uint64) (n int, first, twin Query) {
	in := make(map[uint64]*Query, len(held)) // the held-out set is the smaller one
	for _, q := range held {
		if k := key(q); k != 0 {
			in[k] = nil
		}
	}
	for i, q := range other {
		if by, ok := in[key(q)]; ok && by == nil {
			in[key(q)] = &other[i]
		}
	}
	for _, q := range held {
		if by := in[key(q)]; by != nil {
			if n == 0 {
				first, twin = q, *by
			}
			n++
		}
	}
	return n, first, twin
}

// Blank reports that many queries have the same row of the embedding table: rows that were never filled, or a default.
func Blank(same, looked int, zero bool, a, b int64) []Fault {
	s := share(same, looked)
	if same < fewBlank || s < BlankRows {
		return nil
	}
	what := "the very same row"
	if zero {
		what = "rows of zeros"
	}
	if same == looked {
		return []Fault{{Check: "equal_rows", Value: s, Key: "data.embeddings", Message: fmt.Sprintf("all %d queries have %s in the embedding "+
			"table, so nothing tells them apart: want a row of its own for each id", looked, what)}}
	}
	return []Fault{{Check: "blank_rows", Value: s, Limit: BlankRows, Key: "data.embeddings",
		Message: fmt.Sprintf("%s have %s in the embedding table (queries %d and %d, for example): it was not filled there; whatever else "+
			"depends on these rows is not looked at", of(same, looked, "queries"), what, a, b)}}
}

// fewBlank is the number of queries with one row above which they are more than copies of a question.
const fewBlank = 8
