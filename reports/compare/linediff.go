package compare

import (
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
)

// lineDifference is a run of lines that two texts do not share: stated from line at (counted from 1).
type lineDifference struct {
	At                 int
	Stated, Recomputed []string
}

// Quoted returns the i-th line of either side in quotes: of two the words that differ, of one alone as much as width, none for
// the side that has no such line.
func (d lineDifference) Quoted(i int, none string, width int) (stated, recomputed string) {
	switch {
	case i >= len(d.Stated):
		return none, strconv.Quote(page.Clip(d.Recomputed[i], width))
	case i >= len(d.Recomputed):
		return strconv.Quote(page.Clip(d.Stated[i], width)), none
	}
	return QuoteDifference(d.Stated[i], d.Recomputed[i]), QuoteDifference(d.Recomputed[i], d.Stated[i])
}

// DiffLines compares two texts line by line: a longest common subsequence, after what they share at both ends.
func DiffLines(stated, recomputed []string) []lineDifference {
	from := list.Common(stated, recomputed)
	a, b := stated[from:], recomputed[from:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	const most = 25e6 // cells
	if len(a)*len(b) > most {
		return []lineDifference{{from + 1, a, b}}
	}
	common := list.Make(len(a)+1, func(int) []int32 { return make([]int32, len(b)+1) }) // [i][j]: of a[i:] and b[j:]
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []lineDifference
	for i, j := 0, 0; i < len(a) || j < len(b); {
		if i < len(a) && j < len(b) && a[i] == b[j] {
			i, j = i+1, j+1
			continue
		}
		d := lineDifference{At: from + i + 1}
		for (i < len(a) || j < len(b)) && !(i < len(a) && j < len(b) && a[i] == b[j]) {
			if i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]) {
				d.Stated = append(d.Stated, a[i])
				i++
			} else {
				d.Recomputed = append(d.Recomputed, b[j])
				j++
			}
		}
		out = append(out, d)
	}
	return out
}

// QuoteDifference quotes the part of s that differs from other, with a word or two around it.
func QuoteDifference(s, other string) string {
	const around, most = 2, 160
	x, y := strings.Fields(s), strings.Fields(other)
	if slices.Equal(x, y) { // they differ in their spaces
		return strconv.Quote(page.Clip(s, most))
	}
	from := list.Common(x, y)
	end := 0
	for end < len(x)-from && end < len(y)-from && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	low, high := max(from-around, 0), min(len(x)-end+around, len(x))
	text := strings.Join(x[low:high], " ")
	if low > 0 {
		text = "… " + text
	}
	if high < len(x) {
		text += " …"
	}
	return strconv.Quote(page.Clip(text, most))
}
