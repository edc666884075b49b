package preflight

import (
	"fmt"
	"slices"

	"fulcrum/phases/doctor"
)

// Seen is a check that was made, and the figures that it saw.
type Seen struct{ Phase, Check, Figures string }

// Saw notes the figures of a check, which a dry run shows. phase is Name where a check belongs to none.
func (r *Report) Saw(phase, check, format string, args ...any) {
	r.seen = append(r.seen, Seen{phase, check, fmt.Sprintf(format, args...)})
}

// Passed returns what the checks saw that found nothing worse than a note, in the order they were made.
func (r *Report) Passed() []Seen {
	return slices.DeleteFunc(slices.Clone(r.seen), func(s Seen) bool {
		return slices.ContainsFunc(r.findings, func(f Finding) bool {
			return f.Phase == s.Phase && f.Check == s.Check && f.Severity.WorseThan(doctor.Note)
		})
	})
}
