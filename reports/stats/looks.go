package stats

import (
	"cmp"
	"fmt"
	"math"

	"fulcrum/reports/page"
)

// Alpha is the chance of a false winner that all looks at the same questions may have together.
const Alpha = 0.05

// Look says how often the same held-out questions had been scored, this time counted, and what of Alpha a verdict of them may spend.
// The zero value is that of questions which nobody counts.
type Look struct {
	N       int     `json:"look"`
	Level   float64 `json:"level"`
	Missing string  `json:"missing,omitempty"` // why the ledger knows nothing of it: then it has no number
}

// LookAt returns the n-th look. Its level is Alpha · 6/(π²n²): the levels of all looks there can ever be add up to Alpha, so that any of
// them is a false winner with at most that chance, however they depend on one another and whenever somebody stops (alpha-spending: Tian
// and Ramdas 2021, section 2, with the series Σ 1/n² = π²/6).
func LookAt(n int) Look {
	return Look{N: n, Level: Alpha * 6 / (math.Pi * math.Pi * float64(n) * float64(n))}
}

// Later returns the look of two that has the smaller level, and what either lacks.
func (l Look) Later(o Look) Look {
	missing := cmp.Or(l.Missing, o.Missing)
	if o.N > l.N || o.N == l.N && o.Level < l.Level {
		l = o
	}
	l.Missing = missing
	return l
}

// With returns what a comparison of two policies may spend: the n-th look's level is shared by it and the n − 1 before it that somebody
// may compare it with. Policies of one look, and baselines, which have none, share nothing.
func (l Look) With(o Look) Look {
	later := l.Later(o)
	if l.N != o.N && min(l.N, o.N) > 0 {
		later.Level /= float64(later.N)
	}
	return later
}

// Spent says in a sentence what the look has of Alpha, or that nobody knows.
func (l Look) Spent() string {
	if l.Missing != "" {
		return fmt.Sprintf("how often these questions were looked at before is not known, and the level is not corrected for it: there is "+
			"no ledger of looks (%s).", l.Missing)
	}
	return fmt.Sprintf("this was look %d at these questions (evidence.ledger): all looks share a level of %g, and this one has %s of it.", l.N,
		Alpha, page.Sig(l.Level, 2))
}

func (l Look) String() string {
	if l.N == 0 {
		return "look not counted"
	}
	return fmt.Sprintf("look %d", l.N)
}
