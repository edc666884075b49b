package conversation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/jsonrecords"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	summary "fulcrum/reports/record"
	"fulcrum/rewardutil/vqa"
)

// Need is what a phase wants of a sample.
type Need int

const (
	Target Need = iota // a target, or a recorded completion
	Group              // two recorded completions, to be compared
	Order              // user and assistant in turn, as the chat templates of most models want
)

// Skipped are samples that hold nothing that a phase could learn from.
type Skipped struct {
	Reason string
	Count  int
	Where  string // the first of them, by line and record, and how their length differs from that of the others
}

func (s Skipped) String() string {
	return fmt.Sprintf("%s (%s)", summary.SkippedText(s.Reason, s.Count), s.Where)
}

// With returns the samples that have what is needed, s itself where all do, and the others by reason.
func (s *Set) With(need Need) (*Set, []Skipped, error) {
	if h, ok := s.source.(holder); ok && h.Holds(need) {
		return s, nil, nil
	}
	if _, ok := s.source.(*file); need == Order && !ok { // made of a question and its answer
		return s, nil, nil
	}
	var with []int
	lacking := map[string][]int64{}
	for i, row := range s.rows {
		h, err := s.holding(i)
		if err != nil {
			return nil, nil, err
		}
		if reason := h.lacks(need); reason != "" {
			lacking[reason] = append(lacking[reason], row)
		} else {
			with = append(with, i)
		}
	}
	if len(lacking) == 0 {
		return s, nil, nil
	}
	kept := s.Subset(with)
	out := list.Map(slices.Sorted(maps.Keys(lacking)), func(reason string) Skipped {
		rows := lacking[reason]
		return Skipped{Reason: reason, Count: len(rows), Where: s.places(rows) + s.apart(rows, kept.rows)}
	})
	slices.SortStableFunc(out, func(a, b Skipped) int { return cmp.Compare(b.Count, a.Count) })
	return kept, out, nil
}

// apart says how long the prompts of left-out rows are beside those that are kept, where the means of up to 500 of each, evenly spread, lie
// more than three standard errors apart.
func (s *Set) apart(out, kept []int64) string {
	const most = 500
	lengths := func(rows []int64) (n []float64) {
		step := 1 + (len(rows)-1)/most
		for i := 0; i < len(rows); i += step {
			if sample, err := s.source.Sample(rows[i]); err == nil { // one that cannot be read is an error where it is used
				n = append(n, float64(len(sample.Text())))
			}
		}
		return n
	}
	mean, se := stat.MeanSE(lengths(out))
	others, alike := stat.MeanSE(lengths(kept))
	if !(math.Abs(mean-others) > 3*math.Hypot(se, alike)) { // or too few to tell
		return ""
	}
	return fmt.Sprintf("; prompts of %.0f bytes on average, those kept %.0f", mean, others)
}

func (s *Set) places(rows []int64) string {
	const most = 5
	var parts []string
	for _, row := range rows[:min(most, len(rows))] {
		if f, ok := s.source.(*file); ok {
			parts = append(parts, fmt.Sprint(f.index.Line(row)))
		} else {
			parts = append(parts, fmt.Sprint(row+1))
		}
	}
	if len(rows) > most {
		parts = append(parts, "…")
	}
	what := "record"
	if f, ok := s.source.(*file); ok {
		what = filepath.Base(f.index.Path) + ": line"
	}
	if len(rows) > 1 {
		what += "s"
	}
	if parts = slices.Compact(parts); len(rows) > 1 && len(parts) == 1 { // a file of one line
		what = strings.TrimSuffix(what, "s")
	}
	return what + " " + strings.Join(parts, ", ")
}

// holder is a Source whose samples all hold what is needed: one without it is an error, or cannot be.
type holder interface{ Holds(need Need) bool }

// holding says what a record holds, without its contents.
type holding uint8

const (
	hasTarget   holding = 1 << iota
	lastIsUser          // an assistant speaks, and the user has the last word
	completion          // one recorded completion
	completions         // or several
	twice               // a speaker has two turns in a row
	swapped             // the assistant has the first word
)

func (h holding) lacks(need Need) string {
	switch nothing := h&(hasTarget|completion|completions) == 0; {
	case need == Order && nothing && h&twice != 0: // many templates and models take them where there is an answer
		return "record_with_two_turns_of_a_speaker_in_a_row"
	case need == Order && nothing && h&swapped != 0 && h&lastIsUser != 0: // with a target, a greeting
		return "record_with_swapped_turns"
	case need == Order:
		return ""
	case need == Group && h&completions == 0:
		return "record_with_fewer_than_two_completions"
	case need == Group || !nothing:
		return ""
	case h&lastIsUser != 0:
		return "record_that_ends_with_a_user_turn"
	}
	return "record_without_an_answer"
}

// holding returns that of sample i, from the scan of its file or from the sample.
func (s *Set) holding(i int) (holding, error) {
	if f, ok := s.source.(*file); ok {
		return f.holds[s.rows[i]], nil
	}
	sample, err := s.Sample(i)
	var h holding
	if sample.Reference != "" {
		h |= hasTarget
	}
	return h | several(len(sample.Completions)), err
}

func several(n int) holding {
	switch n {
	case 0:
		return 0
	case 1:
		return completion
	}
	return completions
}

// holdingOf finds what decode would: it looks at the turns' speakers, not at what they say. A value that is not what it
// should be counts as there: decoding the record reports it.
func holdingOf(record []byte) holding {
	var h holding
	speakers := func(value []byte) {
		var turns []struct{ From, Role string }
		h &^= hasTarget | lastIsUser | twice | swapped
		if json.Unmarshal(value, &turns) != nil || len(turns) == 0 {
			h |= hasTarget
			return
		}
		before := ""
		for i, t := range turns {
			speaker := cmp.Or(map[string]string{"gpt": "assistant", "human": "user"}[cmp.Or(t.From, t.Role)], t.From, t.Role)
			assistant := speaker == "assistant"
			switch {
			case before == "" && assistant:
				h |= swapped
			case before == speaker && (assistant || speaker == "user"):
				h |= twice
			}
			if speaker != "system" { // which may stand anywhere
				before = speaker
			}
			if last := i == len(turns)-1; assistant && last {
				h |= hasTarget
			} else if assistant {
				h |= lastIsUser
			}
		}
	}
	var answered, talk, said bool
	var prompt []byte
	jsonrecords.Fields(record, func(key, value []byte) {
		value = bytes.TrimSpace(value)
		if string(value) == "null" {
			return
		}
		switch strings.ToLower(string(key)) { // as decoding matches them
		case `"conversations"`, `"messages"`:
			talk = true
			speakers(value)
		case `"prompt"`:
			prompt = value
		case `"completion"`, `"response"`:
			said = true
		case `"answer"`, `"solution"`:
			answered = answered || string(value) != `""`
		case `"answers"`:
			list, err := answers(value)
			answered = answered || err != nil || vqa.Majority(list) != ""
		case `"completions"`:
			var list []json.RawMessage
			if json.Unmarshal(value, &list) != nil {
				list = make([]json.RawMessage, 2)
			}
			h = h&^(completion|completions) | several(len(list))
		}
	})
	if !talk && prompt != nil {
		if prompt[0] == '[' {
			speakers(prompt)
		}
		answered = answered || said
	}
	if answered {
		h |= hasTarget
	}
	return h
}
