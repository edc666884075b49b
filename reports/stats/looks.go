package stats

import (
	"fmt"
	"math"

	"fulcrum/reports/page"
)

// Alpha is the chance of a false winner that all looks at the same questions may have together.
const Alpha = 0.05

// Look says how often the same held-out questions had been scored, this time counted, and what of Alpha a verdict of them may spend.
// The zero value is that of questions which nobody counts.
type Look struct {
	N     int     `json:"look"`
	Level float64 `json:"level"`
}

// LookAt returns the n-th look. Its level is Alpha · 6/(π²n²): the levels of all looks there can ever be add up to Alpha, so that any of
// them is a false winner with at most that chance, however they depend on one another and whenever somebody stops (alpha-spending: Tian
// and Ramdas 2021, section 2, with the series Σ 1/n² = π²/6).
func LookAt(n int) Look {
	return Look{N: n, Level: Alpha * 6 / (math.Pi * math.Pi * float64(n) * float64(n))}
}

// Later returns the look of two that has the smaller level: a comparison of both is no earlier.
func (l Look) Later(o Look) Look {
	if o.N > l.N {
		return o
	}
	return l
}

// Spent says in a sentence what the look has of Alpha.
func (l Look) Spent() string {
	return fmt.Sprintf("this was look %d at these questions (evidence.ledger): all looks share a level of %g, and this one has %s of it.", l.N,
		Alpha, page.Sig(l.Level, 2))
}

func (l Look) String() string { return fmt.Sprintf("look %d", l.N) }
