package shapes

import (
	"testing"

	"fulcrum/internal/rng"
)

// A hand-made scene: a big red circle, right of it a small blue square, below the circle a small blue
// triangle, and a small green square far from both.
func TestTrueAnswers(t *testing.T) {
	s := oneObject(object{shape: circle, hue: 0, x: 12, y: 12, r: 9, big: true})
	s.objects = append(s.objects,
		object{shape: square, hue: 4, x: 50, y: 14, r: 6}, object{shape: triangle, hue: 4, x: 10, y: 50, r: 6},
		object{shape: square, hue: 3, x: 33, y: 33, r: 6})
	want := map[string]string{
		"what color is the circle?":                    "red",
		"what color is the triangle?":                  "blue",
		"what shape is the red thing?":                 "circle",
		"what shape is the green thing?":               "square",
		"how many squares are there?":                  "2",
		"how many circles are there?":                  "1",
		"how many crosses are there?":                  "0",
		"how many blue things are there?":              "2",
		"how many things are there?":                   "4",
		"what shape is right of the circle?":           "square",
		"what shape is below the circle?":              "triangle",
		"what shape is above the triangle?":            "circle",
		"is there a red circle?":                       "yes",
		"is there a green circle?":                     "no",
		"which is bigger, the circle or the square?":   "",
		"which is bigger, the triangle or the circle?": "circle",
		"what color is the biggest thing?":             "red",
		"what color is the square?":                    "", // two squares: never asked
		"what shape is the blue thing?":                "",
		"what shape is left of the circle?":            "",
	}
	got := map[string]string{}
	r := rng.New(1, "test")
	for range 4000 {
		for _, q := range s.questions(r, 2) {
			if old, ok := got[q.text]; ok && old != q.truth {
				t.Fatalf("%q has the answers %q and %q", q.text, old, q.truth)
			}
			got[q.text] = q.truth
			for _, slip := range q.slips {
				if slip == q.truth {
					t.Fatalf("%q: the slip %q is the truth", q.text, slip)
				}
			}
		}
	}
	for text, truth := range want {
		if got[text] != truth {
			t.Errorf("%q: got %q, want %q", text, got[text], truth)
		}
	}
}

func TestHeadIsTheFirstTwoWords(t *testing.T) {
	for text, want := range map[string]string{
		"What color is it?":   "what color",
		"Count, 2 of them":    "count 2",
		"look closely: count": "look closely",
		"why?":                "why",
		"":                    "",
	} {
		if got := Head(text); got != want {
			t.Errorf("Head(%q) = %q, want %q", text, got, want)
		}
	}
}
