package record

import "testing"

// Reasons are words with the right number; those that the program does not know are shown as they are.
func TestSkippedText(t *testing.T) {
	for want, of := range map[string]struct {
		reason string
		n      int
	}{
		"4,386 queries in their own candidate pools": {"query_dropped_from_its_pool", 4386},
		"1 query in its own candidate pool":          {"query_dropped_from_its_pool", 1},
		"sft: 2 records without an answer":           {"sft: record_without_an_answer", 2}, "1 empty answer": {"empty_answers", 1},
		"1 task level missing beside known ones of the group: data.reward.levels.task sets these candidates back": {
			"candidate_without_task_level", 1},
		"3 some other reason": {"some_other_reason", 3},
	} {
		if got := SkippedText(of.reason, of.n); got != want {
			t.Errorf("%d %s: %q, want %q", of.n, of.reason, got, want)
		}
	}
}
