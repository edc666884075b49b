package conversation

import (
	"encoding/binary"
	"fmt"
	"slices"

	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// Set is a list of samples that are made on demand. A nil set is empty. Safe for concurrent use.
type Set struct {
	Name string // train, val, eval

	source Source
	rows   []int64 // rows of the source; sample i is row rows[i]
}

// Source makes the samples of rows. It is safe for concurrent use.
type Source interface {
	Sample(row int64) (Sample, error)
	Fingerprint() string // of the whole source
}

// NewSet returns the samples of these rows of a source.
func NewSet(name string, src Source, rows []int64) *Set {
	return &Set{Name: name, source: src, rows: rows}
}

// Rows returns 0 to n-1: all rows of a source of n.
func Rows(n int) []int64 { return list.Map(stat.Indices(n), func(i int) int64 { return int64(i) }) }

// Len returns the number of samples; a nil set has none.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.rows)
}

// ID returns the identity of sample i without making it.
func (s *Set) ID(i int) int64 { return s.rows[i] }

// Sample returns sample i. Errors name file, record and field.
func (s *Set) Sample(i int) (Sample, error) { return s.source.Sample(s.rows[i]) }

// Subset returns the samples with the given indices, in that order.
func (s *Set) Subset(indices []int) *Set { return NewSet(s.Name, s.source, list.Map(indices, s.ID)) }

// First returns the first n samples, or all where there are fewer.
func (s *Set) First(n int) *Set {
	if s == nil || n >= len(s.rows) {
		return s
	}
	return NewSet(s.Name, s.source, slices.Clip(s.rows[:n]))
}

// Questions returns a digest of the samples of a set, whatever words their prompts have, and a sketch to which a sample is the same in any
// row of any file.
func (s *Set) Questions() (sum string, sketch []string) {
	h, members := digest.New(), []string{}
	for i := range s.Len() {
		q, _ := s.Sample(i) // one that cannot be read stops the evaluation
		fmt.Fprintf(h, "%d %q %q %q\n", q.ID, q.Name, q.Reference, q.Answers)
		members = append(members, fmt.Sprintf("%q %q %q", q.Text(), q.Reference, q.Answers))
	}
	return h.Hex(), digest.Sketch(members)
}

// Fingerprint returns a SHA-256 over the source's bytes and the samples chosen from it, in hex.
func (s *Set) Fingerprint() string {
	h := digest.New()
	fmt.Fprintln(h, s.source.Fingerprint())
	buf := make([]byte, 0, 8*len(s.rows))
	for _, r := range s.rows {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(r))
	}
	h.Write(buf)
	return h.Hex()
}
