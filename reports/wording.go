package reports

import (
	"slices"
	"strings"
)

// A pointer policy selects examples from a pool, a token policy writes an answer. Both train through the
// same phases and leave the same files; a report must call things by their names.

// answers reports whether the run's policy writes text: completions have lengths, selections have none.
func (r *Run) answers() bool {
	has := func(rows []Row) bool {
		return slices.ContainsFunc(rows, func(row Row) bool {
			_, ok := row.Number("completion_length")
			return ok
		})
	}
	return slices.ContainsFunc(r.Steps, func(s *Steps) bool { return s.Column("completion_length") != nil }) || has(r.Epochs) || has(r.EvalRows)
}

// wording returns what to call a thing: of a run whose policy selects examples, or of one that writes.
func (r *Run) wording(selects, writes string) string {
	if r.answers() {
		return writes
	}
	return selects
}

// inItsWords calls the candidates of a sentence that knows no policy what they are in this run.
func (r *Run) inItsWords(text string) string {
	return strings.ReplaceAll(text, "candidate", r.wording("candidate", "completion"))
}
