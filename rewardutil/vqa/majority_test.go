package vqa

import "testing"

func TestMajority(t *testing.T) {
	for want, answers := range map[string][]string{"a": {"a", "b", "b", "a"}, "b": {"a", "b", "", "b"}, "c": {"c", ""}, "": nil} {
		if got := Majority(answers); got != want {
			t.Errorf("Majority(%q) = %q, want %q", answers, got, want)
		}
	}
}
