package page

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Sig writes x with n significant digits: 0.1873, 12.35, 1.2e-05. Tables, lines and plots use it.
func Sig(x float64, n int) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 0):
		return strings.TrimPrefix(strconv.FormatFloat(x, 'f', 0, 64), "+")
	case x == 0:
		return "0"
	}
	exp := int(math.Floor(math.Log10(math.Abs(x))))
	if exp < -4 || exp >= 6 {
		return strconv.FormatFloat(x, 'e', n-1, 64)
	}
	return strconv.FormatFloat(x, 'f', max(n-1-exp, 0), 64)
}

// Nats writes a KL estimate with n significant digits. Below 1e-6 it is what rounding leaves of 0, of either sign.
func Nats(x float64, n int) string {
	if math.Abs(x) < 1e-6 {
		return "0"
	}
	return Sig(x, n)
}

// Fixed writes x with the given decimals and a sign, for columns of differences.
func Fixed(x float64, decimals int) string {
	s := strconv.FormatFloat(math.Abs(x), 'f', decimals, 64)
	if x < 0 && strings.ContainsAny(s, "123456789") {
		return "−" + s
	}
	return "+" + s
}

// Estimate writes a number and the ends of its interval as all pages do: with the decimals that show half the interval with two significant
// digits (without a width the number with four), and more where an end would read as the 0 that it is not, or the number, where it is at
// least a thousandth of half the interval.
// write is Fixed for differences, Unsigned for scores.
func Estimate(mean, low, high float64, write func(x float64, decimals int) string) (m, l, h string) {
	half := (high - low) / 2
	if Rounding(mean, half) {
		half = math.Abs(mean) / 100
	}
	n := decimalsOf(half)
	reads0 := func(x float64) bool { return x != 0 && !strings.ContainsAny(write(x, n), "123456789") }
	for most := n + 4; n < most && (reads0(low) || reads0(high) || reads0(mean) && math.Abs(mean) > (high-low)/2000); {
		n++
	}
	return write(mean, n), write(low, n), write(high, n)
}

// decimalsOf are those that show an error with two significant digits; of one that is 0 or not known they are four.
func decimalsOf(se float64) int {
	if !(se > 0) || math.IsInf(se, 0) {
		return 4
	}
	_, exp, _ := strings.Cut(strconv.FormatFloat(se, 'e', 1, 64), "e") // rounded first: 0.0998 is 0.10
	n, _ := strconv.Atoi(exp)
	return min(max(1-n, 0), 12)
}

// MeanSE writes a score and its standard error, or the standard deviation of several: 0.482 ± 0.013.
func MeanSE(mean, se float64) string {
	if Rounding(mean, se) {
		return Score(mean, 0) + " ± 0"
	}
	return Score(mean, se) + " ± " + Unsigned(se, decimalsOf(se))
}

// Score writes a score with the decimals that its standard error leaves; of one without error four significant digits.
func Score(mean, se float64) string {
	if !(se > 0) || Rounding(mean, se) {
		return Sig(mean, 4)
	}
	return Unsigned(mean, decimalsOf(se))
}

// Rounding reports whether an error, or a deviation, is that of sums of equal scores.
func Rounding(mean, se float64) bool { return se <= 1e-12*math.Abs(mean) }

// Unsigned writes x with the given decimals, and a minus sign where it is negative.
func Unsigned(x float64, decimals int) string { return strings.TrimPrefix(Fixed(x, decimals), "+") }

// Percent writes a share as 6.2%.
func Percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + "%" }

// Duration writes seconds for people: 0.42 ms, 3.1 s, 2m05s, 1h02m.
func Duration(seconds float64) string {
	switch {
	case math.IsNaN(seconds) || seconds < 0:
		return "unknown"
	case seconds < 0.1:
		return Sig(1000*seconds, 2) + " ms"
	case seconds < 60:
		return Sig(seconds, 2) + " s"
	}
	d := time.Duration(math.Round(seconds)) * time.Second
	if d < time.Hour {
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Plural writes a count with its noun: 1 epoch, 3 epochs, 2 queries.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return Thousands(n) + " " + stem + "ies"
	}
	return Thousands(n) + " " + noun + "s"
}

// Thousands writes 12345 as 12,345.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func Capital(s string) string {
	if s == "" {
		return s
	}
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:]
}

// Joined writes a, b and c.
func Joined(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}

func Verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
