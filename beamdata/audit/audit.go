// Package audit finds what is wrong with a run's data before it trains: queries that stand twice or on both sides of a
// split, rewards that can teach nothing, records that contradict the reader, pools that do not belong to their queries.
//
//	faults := audit.Overlap(splits)
//	faults = append(faults, audit.Rewards(groups, precision)...)
//
// It knows lists of keys, groups of rewards and sums of similarities; packages beamdata and conversation
// make them of their sets. Large data is sampled evenly, so equal data gives equal faults, in a second.
package audit

import (
	"fmt"

	"fulcrum/reports/page"
)

// Fault is something wrong with the data, or worth knowing.
type Fault struct {
	Check   string // snake_case name of the check: split_leak, constant_rewards, …
	Mild    bool   // worth knowing, no reason to worry
	Message string // one plain sentence: the number first, then the likely cause
	Key     string // configuration key to change; "" where it is the data
	Value   float64
	Limit   float64
}

// Sampled bounds the number of queries that costly checks read.
const Sampled = 16384

// Every returns the step by which at most most of n items are visited evenly.
func Every(n, most int) int { return max(1, (n+most-1)/most) }

// Evenly returns at most most of the indices below n, a step of Every apart.
func Evenly(n, most int) (at []int) {
	for i := 0; i < n; i += Every(n, most) {
		at = append(at, i)
	}
	return at
}

// graded returns a fault: mild below its limit, with its cause above.
func graded(check string, value, limit float64, message, cause string) Fault {
	f := Fault{Check: check, Value: value, Limit: limit, Mild: value < limit, Message: message}
	if !f.Mild {
		f.Message += ": " + cause
	}
	return f
}

// of returns a share with its counts: "12 of 801 queries (1.5 %)".
func of(n, total int, what string) string {
	return fmt.Sprintf("%s of %s %s (%s)", page.Thousands(n), page.Thousands(total), what, percent(share(n, total)))
}

func share(n, of int) float64 { return float64(n) / float64(max(of, 1)) }

func percent(x float64) string {
	if x > 0 && x < 0.001 {
		return "under 0.1 %"
	}
	return fmt.Sprintf("%.3g %%", 100*x)
}
