package reward

import (
	"fmt"
	"image"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// alone returns the rewards with one term on, with its defaults.
func alone(t *testing.T, field string) Options {
	t.Helper()
	o := DefaultOptions()
	o.Judge.URL = (&chat{answer: func(p string) string { return fmt.Sprint(len(p) % 9) }}).serve(t)
	o.External.Command = []string{"sh", "-c", "while read -r line; do echo 0.5; done"} // the other terms do not read it
	reflect.ValueOf(&o).Elem().FieldByName(field).FieldByName("Weight").SetFloat(1)
	return o
}

// Every term keeps what all promise: the same scores for the same items, alone or in a batch, finite and, with the
// defaults, in [0, 1]; an item that lacks something is named; a negative weight is refused.
func TestTermsConform(t *testing.T) {
	dir := t.TempDir()
	writeMask(t, dir, "object.png", 8, 8, image.Rect(0, 0, 4, 4))
	writeMask(t, dir, "confusion.png", 8, 8, image.Rect(4, 4, 8, 8))
	var items []Item
	for i, completion := range []string{
		"<think>two cats</think><answer>two cats sat, here</answer>", "", "<answer>cats</answer>", "no tag at all: (5, 5)",
		`<answer>{"negative_points": [[5, 5], [1, 1]]}</answer>`,
	} {
		items = append(items, Item{
			Name: fmt.Sprint("q", i), Prompt: "what?", Completion: completion, Reference: "<answer>two cats sat</answer>",
			Answers: []string{"cats", "two cats", "cats"},
			Meta:    []byte(`{"ground_truth_mask": "object.png", "confusion_mask": "confusion.png"}`), Root: dir,
		})
	}
	checked := 0
	fields := reflect.TypeFor[Options]()
	for i := range fields.NumField() {
		field := fields.Field(i)
		if !field.Type.Implements(reflect.TypeFor[term]()) {
			continue
		}
		checked++
		t.Run(field.Name, func(t *testing.T) {
			r, err := alone(t, field.Name).Build(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if len(r.Terms) != 1 || r.Terms[0].Name != field.Tag.Get("koanf") {
				t.Fatalf("terms %v, want %s alone", r.Terms, field.Tag.Get("koanf"))
			}
			score := func(items ...Item) []float64 {
				t.Helper()
				scores, err := r.Terms[0].Reward.Score(t.Context(), items)
				if err != nil || len(scores) != len(items) {
					t.Fatalf("%d scores of %d items, error %v", len(scores), len(items), err)
				}
				return scores
			}
			batch := score(items...)
			least, greatest, ok := alone(t, field.Name).Range()
			if without := field.Name == "External" || field.Name == "Points"; ok == without || ok && (least != 0 || greatest != 1) {
				t.Errorf("range %g to %g, %v", least, greatest, ok)
			}
			var single []float64
			for i, it := range items {
				single = append(single, score(it)...)
				if !(batch[i] >= 0 && batch[i] <= 1) {
					t.Errorf("%q scores %v, want a number in [0, 1]", it.Completion, batch[i])
				}
			}
			if !slices.Equal(single, batch) || !slices.Equal(score(items...), batch) {
				t.Errorf("a batch scores %v, then %v; one by one %v", batch, score(items...), single)
			}
			if slices.Equal(batch, make([]float64, len(batch))) {
				t.Errorf("all items score 0: nothing was tried")
			}
			if _, err := r.Terms[0].Reward.Score(t.Context(), []Item{{Name: "q7", Completion: "x"}}); err != nil &&
				!strings.HasPrefix(err.Error(), "q7: ") {
				t.Errorf("an item that lacks what the term needs: %v, want its name", err)
			}
			o := alone(t, field.Name)
			reflect.ValueOf(&o).Elem().FieldByName(field.Name).FieldByName("Weight").SetFloat(-1)
			want := "rewards." + field.Tag.Get("koanf") + ".weight: want a number in [0, inf), got -1"
			if _, err := o.Build(nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a negative weight: %v", err)
			}
		})
	}
	if checked < 9 {
		t.Errorf("%d terms tried, want at least 9", checked)
	}
}
