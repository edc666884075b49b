package reward

import (
	"context"
	"regexp"
	"strings"
	"unicode"

	"fulcrum/internal/list"
	"fulcrum/rewardutil/text"
)

// AccuracyOptions configures the reward for naming the reference's actions.
type AccuracyOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	// numbered = (N) where the reference numbers its actions, else comma; comma = between commas, semicolons and line
	// ends; any = at white space too
	Split string `koanf:"split" enum:"numbered,comma,any"`
	// a completion without <answer>…</answer> earns 0; false: all of it is its answer
	Tagged bool `koanf:"tagged"`
}

// setDefaults sets the Qwen-VL recipe's way; the term is off.
func (o *AccuracyOptions) setDefaults() { *o = AccuracyOptions{Split: "numbered"} }

func (AccuracyOptions) most() float64 { return 1 }

func (o AccuracyOptions) build() (Reward, error) { return o, nil }

// Score compares the answer part of each completion with that of its reference: 1 where they are equal once
// normalised, else the intersection over union of their sets of actions, in [0, 1].
//
// Normalised means lower case, runs of white space as one blank, and no white space, quotes, brackets or
// full stops at either end. With split numbered an action is its option number wherever the reference numbers
// its actions, "(1) pick up (2) attach": the words beside the numbers do not count, and a completion without
// numbers names no action. Other actions are what commas, semicolons, line ends and (split: any) white space
// separate, each normalised, empty ones left out.
func (o AccuracyOptions) Score(_ context.Context, items []Item) ([]float64, error) {
	return byReference(items, "accuracy", func(completion, reference string) float64 {
		if o.Tagged && !text.HasAnswer(completion) {
			return 0
		}
		return o.score(text.Answer(completion), text.Answer(reference))
	})
}

func (o AccuracyOptions) score(answer, reference string) float64 {
	if normalizeAction(answer) == normalizeAction(reference) {
		return 1
	}
	if options := optionNumbers(reference); o.Split == "numbered" && len(options) > 0 {
		return SetIoU(optionNumbers(answer), options)
	}
	return SetIoU(o.actions(answer), o.actions(reference))
}

// actions returns the set of an answer's actions, as a list that may repeat.
func (o AccuracyOptions) actions(s string) []string {
	parts := strings.FieldsFunc(s, func(r rune) bool {
		return r == ',' || r == ';' || r == '\n' || o.Split == "any" && unicode.IsSpace(r)
	})
	return list.Filter(list.Map(parts, normalizeAction), func(p string) bool { return p != "" })
}

var optionNumber = regexp.MustCompile(`\((\d+)\)`)

// optionNumbers returns the numbers of "(1) pick up (2) attach", as a list that may repeat.
func optionNumbers(s string) []string {
	return list.Map(optionNumber.FindAllStringSubmatch(s, -1), func(m []string) string { return m[1] })
}

func normalizeAction(s string) string {
	s = strings.Join(strings.Fields(strings.ToLower(s)), " ")
	return strings.Trim(s, " .\"'`()[]{}")
}

// SetIoU returns |A ∩ B| / |A ∪ B| of two lists taken as sets; 0 where both are empty.
func SetIoU(a, b []string) float64 {
	inA, inB, both := list.Set(a), list.Set(b), 0
	for x := range inA {
		if inB[x] {
			both++
		}
	}
	return float64(both) / float64(max(1, len(inA)+len(inB)-both))
}
