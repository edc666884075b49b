// Package vqa computes VQA accuracy as the official evaluation does.
package vqa

import (
	"cmp"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"fulcrum/internal/list"
	"fulcrum/rewardutil/text"
)

// ExtractAnswer returns the answer within a generation: the text before the first of Question, Answer or
// Short, then before the first comma followed by a space. Source: parity specification §8.
func ExtractAnswer(generation string) string {
	for _, word := range []string{"Question", "Answer", "Short"} {
		generation, _, _ = strings.Cut(generation, word)
	}
	answer, _, _ := strings.Cut(generation, ", ")
	return answer
}

// Majority returns the answer given most often, of equally frequent ones the first: what a record without a reference, and a
// demonstration, show.
func Majority(answers []string) string {
	best, most := "", 0
	count := list.Tally(answers)
	for _, a := range answers {
		if count[a] > most {
			best, most = a, count[a]
		}
	}
	return best
}

// NormalizeAnswer returns an answer as the VQA evaluation compares it: punctuation removed, lower case,
// number words as digits, no articles, contractions with their apostrophes, single spaces.
func NormalizeAnswer(s string) string { return normalizeWords(stripPunctuation(s)) }

// stripPunctuation removes punctuation by the evaluation's rules. Whether a mark is deleted or becomes a
// space is decided by the original string; at most 32 periods go, as there.
func stripPunctuation(s string) string {
	const marks = ";/[]\"{}()=+\\_-><@`,?!"
	if !strings.ContainsAny(s, marks) { // as most answers are
		return stripPeriods(s, 32)
	}
	out, grouped := s, digitComma.MatchString(s)
	for _, p := range strings.Split(marks, "") {
		with := " "
		if grouped || strings.Contains(s, p+" ") || strings.Contains(s, " "+p) {
			with = ""
		}
		out = strings.ReplaceAll(out, p, with)
	}
	return stripPeriods(out, 32)
}

var digitComma = regexp.MustCompile(`\p{Nd},\p{Nd}`) // as in 1,000

// stripPeriods removes the first n periods that no digit follows.
func stripPeriods(s string, n int) string {
	if !strings.Contains(s, ".") {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		if c == '.' && n > 0 {
			if after, _ := utf8.DecodeRuneInString(s[i+1:]); !unicode.IsDigit(after) {
				n--
				continue
			}
		}
		b.WriteRune(c)
	}
	return b.String()
}

func normalizeWords(s string) string {
	var words []string
	for _, w := range strings.Fields(text.Lower(s)) {
		switch w = cmp.Or(digits()[w], w); w {
		case "a", "an", "the":
		default:
			words = append(words, cmp.Or(contractions()[w], w))
		}
	}
	return strings.Join(words, " ")
}

// VQAAccuracy returns the official VQA accuracy of a prediction, in [0, 1]: for each of the ground-truth answers,
// min(1, matches among the others / 3), averaged. Strings are normalised where the ground truths differ from each
// other, as in the standard evaluation; compat normalises always, as the Python reference does. Without ground truths
// it is 0. Source: Antol et al. 2015 (arXiv:1505.00468) and parity specification §8.
func Accuracy(prediction string, answers []string, compat bool) float64 {
	records := list.Map(answers, func(a string) Answer { return Answer{Answer: a} })
	return vqaAccuracy(prediction, records, compat, func(i, j int) bool { return i == j })
}

// vqaAccuracy leaves out of the others of ground truth i whatever same(i, j) says is the same record.
func vqaAccuracy(prediction string, answers []Answer, compat bool, same func(i, j int) bool) float64 {
	if len(answers) == 0 {
		return 0
	}
	trim := strings.NewReplacer("\n", " ", "\t", " ")
	prediction = strings.TrimSpace(trim.Replace(prediction))
	differ := compat
	for i := range answers {
		answers[i].Answer = strings.TrimSpace(trim.Replace(answers[i].Answer))
		differ = differ || answers[i].Answer != answers[0].Answer
	}
	if differ {
		prediction = NormalizeAnswer(prediction)
		for i := range answers {
			answers[i].Answer = NormalizeAnswer(answers[i].Answer)
		}
	}
	sum := 0.0
	for i := range answers {
		matches := 0
		for j := range answers {
			if !same(i, j) && answers[j].Answer == prediction {
				matches++
			}
		}
		sum += min(1, float64(matches)/3)
	}
	return sum / float64(len(answers))
}
