package reports

import (
	"fmt"
	"strings"
)

// Verdict is what a comparison allows to say.
type Verdict string

// The three verdicts.
const (
	Better       Verdict = "better"
	Worse        Verdict = "worse"
	NotSeparable Verdict = "not separable"
)

// verdictOf needs all: both intervals without 0 and a corrected p-value below 1 − level.
func verdictOf(p Paired) Verdict {
	if !p.Interval.Excludes(0) || !p.BCa.Excludes(0) || p.PHolm >= 1-p.Level {
		return NotSeparable
	}
	if p.Mean > 0 {
		return Better
	}
	return Worse
}

// Sentence says the verdict with its numbers; what and against name the two sides, metric the score.
func (p Paired) Sentence(what, against, metric string) string {
	var b strings.Builder
	numbers := fmt.Sprintf("%s %s per question, 95%% interval %s to %s, %s",
		fixed(p.Mean, 4), metric, fixed(p.Interval.Low, 4), fixed(p.Interval.High, 4), plural(p.N, "question"))
	if p.Level != 0.95 {
		numbers = strings.Replace(numbers, "95%", sig(100*p.Level, 3)+"%", 1)
	}
	switch p.Verdict {
	case Better, Worse:
		fmt.Fprintf(&b, "%s is %s than %s: %s, p %s", what, p.Verdict, against, numbers, pValue(p.PHolm))
	default:
		if p.Changed == 0 {
			fmt.Fprintf(&b, "%s and %s score the same on every one of %s", what, against, plural(p.N, "question"))
			break
		}
		fmt.Fprintf(&b, "%s is not separable from %s: %s, p %s", what, against, numbers, pValue(p.PHolm))
		if p.Questions > p.N {
			fmt.Fprintf(&b, "; a difference of this size would take about %s to settle", plural(roundUp(p.Questions), "question"))
		}
	}
	return b.String()
}

func pValue(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return "= " + sig(p, 2)
}

// roundUp keeps two digits: 12,345 questions are a guess of 13,000.
func roundUp(n int) int {
	unit := 1
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}
