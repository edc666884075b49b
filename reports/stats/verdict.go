package stats

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
)

type Verdict string

const (
	Better       Verdict = "better"
	Worse        Verdict = "worse"
	NotSeparable Verdict = "not separable"
)

// VerdictOf needs all: both intervals without 0 and a corrected p-value below 1 − level.
func VerdictOf(p Paired) Verdict {
	if !p.Interval.Excludes(0) || !p.BCa.Excludes(0) || p.PHolm >= 1-p.Level {
		return NotSeparable
	}
	if p.Mean > 0 {
		return Better
	}
	return Worse
}

// openAmong is the doubt where interval and p-value leave out 0 until they are corrected for the family.
const openAmong = "among so many comparisons it stays open"

// The doubts where only the correction for the stage keeps a verdict back, before the last stage and at it.
const (
	openSoFar   = "at so early a stage it stays open"
	openAtStage = "corrected for its stages it stays open"
)

// onlyPermutations is the doubt where interval and test, which are two procedures, part the other way.
const onlyPermutations = "the permutation test alone leaves out 0"

// doubt names what keeps a difference from a verdict although its interval or its p-value leaves out 0: "" where there is a verdict, or
// where the two agree that there is none.
func doubt(p Paired) string {
	switch {
	case p.Verdict != NotSeparable:
		return ""
	case !p.Interval.Excludes(0) && p.PHolm < 1-p.Level:
		return onlyPermutations
	case !p.Interval.Excludes(0):
		return ""
	case p.PHolm < 1-p.Level && !p.BCa.Excludes(0):
		return "the bootstrap interval holds 0"
	case p.Family > 1 && p.Among(p.P) < 1-p.Level:
		return openAmong
	case p.Stage.N > 0 && p.Stage.N == p.Stage.Of:
		return openAtStage
	case p.Stage.N > 0:
		return openSoFar
	}
	return "the permutation test does not agree"
}

// Remarks are what a sentence adds to its numbers: what they are corrected for, what speaks against them.
func (p Paired) Remarks() string {
	var out string
	cut := ""
	if p.Cut {
		cut = fmt.Sprintf("the interval ends where it can: scores differ by at most %g", p.opt.Most)
	}
	open := doubt(p)
	if open == openSoFar {
		open = fmt.Sprintf("not decided yet: %s demands p < %s before corrections, and it is %s", p.Stage,
			page.Sig((1-p.Level)*p.Stage.Share/float64(max(p.Family, 1)), 1), page.Sig(p.P, 2))
	}
	for _, remark := range []string{p.words(), open, cut} {
		if remark != "" {
			out += "; " + remark
		}
	}
	if p.Rough != "" {
		out += "; rough: " + p.Rough
	}
	return out
}

// QuestionWords counts the questions, and the clusters where there are some.
func QuestionWords(n, clusters int) string {
	if clusters > 0 {
		return fmt.Sprintf("%s in %s", page.Plural(n, "question"), page.Plural(clusters, "cluster"))
	}
	return page.Plural(n, "question")
}

// Sentence says the verdict with its numbers; what and against name the two sides, metric the score.
func (p Paired) Sentence(what, against, metric string) string {
	switch {
	case p.Verdict != NotSeparable:
		return fmt.Sprintf("%s is %s than %s: %s", what, p.Verdict, against, p.numbers(metric))
	case p.Changed == 0:
		return fmt.Sprintf("%s and %s score the same on %s", what, against, p.everyQuestion())
	}
	return fmt.Sprintf("%s is not separable from %s: %s", what, against, p.numbers(metric))
}

// Entry is Sentence where both sides are named already: better, +0.0191 reward per question, ….
func (p Paired) Entry(metric string) string {
	if p.Verdict == NotSeparable && p.Changed == 0 {
		return "the same score on " + p.everyQuestion()
	}
	return fmt.Sprintf("%s, %s", p.Verdict, p.numbers(metric))
}

func (p Paired) everyQuestion() string {
	text := "every one of " + page.Plural(p.N, "question")
	if p.Rough != "" {
		text += "; rough: " + p.Rough
	}
	return text
}

// numbers are the difference, its interval and p-value, and what is to be said of them.
func (p Paired) numbers(metric string) string {
	mean, low, high := p.Texts()
	text := fmt.Sprintf("%s %s per question, %s%% interval %s to %s, %s, p %s%s", mean, metric, page.Sig(100*p.Level, 2), low, high,
		QuestionWords(p.N, p.Clusters), p.PWords(), p.Remarks())
	if p.Verdict == NotSeparable && p.Questions > p.N {
		text += fmt.Sprintf("; a difference of this size would take about %s to settle", page.Plural(RoundUp(p.Questions), "question"))
	}
	return text
}

// Dagger marks a verdict whose interval is rough.
const Dagger = "†"

// CutMark marks a verdict whose interval would have gone beyond what scores can differ by.
const CutMark = "‡"

const cutNote = CutMark + " the interval ends at what scores can differ by at most, where Student's would go beyond."

// RoughNote explains the daggers of a table; "" where it has none.
func RoughNote[T any](rows [][]T) string {
	return noteOf(rows, Dagger, Dagger+" rough: the interval may be off, because questions are few, few of them changed, or the differences "+
		"are strongly skewed.")
}

// CutNote explains the double daggers of a table; "" where it has none.
func CutNote[T any](rows [][]T) string { return noteOf(rows, CutMark, cutNote) }

// Notes are RoughNote and CutNote of a table, as far as it needs them.
func Notes[T any](rows [][]T) []string {
	return list.Filter([]string{RoughNote(rows), CutNote(rows)}, func(note string) bool { return note != "" })
}

// noteOf returns a note where a cell has its mark.
func noteOf[T any](rows [][]T, mark, note string) string {
	if slices.ContainsFunc(slices.Concat(rows...), func(cell T) bool { return strings.Contains(fmt.Sprint(cell), mark) }) {
		return note
	}
	return ""
}

// VerdictCell writes a verdict for a table, with what keeps the difference from one where its interval does not show
// it, and a dagger where its numbers are rough: RoughNote goes below the table.
func VerdictCell(p Paired) string {
	text := string(p.Verdict)
	switch doubt(p) {
	case "":
	case onlyPermutations:
		text += " (interval)"
	case "the bootstrap interval holds 0":
		text += " (bootstrap)"
	case openAmong:
		text += fmt.Sprintf(" (of %d)", p.Family)
	case openSoFar, openAtStage:
		text += fmt.Sprintf(" (%s)", p.Stage)
	default:
		text += " (permutations)"
	}
	if p.Rough != "" {
		text += " " + Dagger
	}
	if p.Cut {
		text += " " + CutMark
	}
	return text
}

// Cells writes a comparison for a table: the difference with its interval, the corrected p-value, the effect size and the verdict.
func (p *Paired) Cells() (gain, pHolm, effect, verdict string) {
	switch {
	case p == nil:
		return "–", "–", "–", ""
	case p.Changed == 0:
		return p.Gain(), "–", "–", "same scores"
	}
	return p.Gain(), p.PCell(), page.Fixed(p.Effect, 2), VerdictCell(*p)
}

func (p Paired) Texts() (mean, low, high string) {
	return page.Estimate(p.Mean, p.Interval.Low, p.Interval.High, page.Fixed)
}

// Gain writes a difference for a table: +0.0191 [+0.0105, +0.0279].
func (p Paired) Gain() string {
	if p.Changed == 0 {
		return "0"
	}
	mean, low, high := p.Texts()
	return fmt.Sprintf("%s [%s, %s]", mean, low, high)
}

// PWords writes the corrected p-value behind a p: < 0.001, = 0.012, ≤ 0.0024 where no more sign patterns were drawn than tell so much.
func (p Paired) PWords() string {
	switch {
	case p.PHolm < 0.001:
		return "< 0.001"
	case p.PFloor && p.PHolm < 1:
		return "≤ " + page.Sig(p.PHolm, 2)
	}
	return "= " + page.Sig(p.PHolm, 2)
}

// PCell is PWords for a column of p-values.
func (p Paired) PCell() string { return strings.TrimPrefix(p.PWords(), "= ") }

// RoundUp keeps two digits: 12,345 questions are a guess of 13,000.
func RoundUp(n int) int {
	unit := 1
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}
