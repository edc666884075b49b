package keycheck

import (
	"fmt"
	"testing"
)

func TestNearest(t *testing.T) {
	names := []string{"vqa_correct", "vqa_acc_score", "vqa_gt_prob", "beam_score", "completions"}
	for key, want := range map[string]string{
		"vqa_accuracy": "vqa_acc_score", // more than a typing error away, but it begins alike
		"vqa_corect":   "vqa_correct",
		"completion":   "completions",
		"beam_scores":  "beam_score",
		"reward":       "",
		"vqa_x":        "",
	} {
		if got := Nearest(key, names); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	keys := New("b.json", "trajectory", []string{"vqa_correct"}, []string{"temperature"})
	line := 0
	for _, key := range []string{"vqa_correct", "temperature", "other", "vqa_corect", "vqa_corect"} {
		line++
		keys.See([]byte(key), func() int { return line })
	}
	got := keys.Unknown()
	if len(got) != 2 || got[0].String() != `b.json: unknown key "vqa_corect" in 2 trajectories, the first in line 4: did you `+
		`mean vqa_correct? It is not read` ||
		got[1].String() != `b.json: unknown key "other" in 1 trajectory, in line 3: it is not read` {
		t.Fatalf("got %v", got)
	}
	if keys.Like("vqa_correct") != "vqa_corect" || keys.Like("other") != "" {
		t.Error("Like does not find what was meant")
	}
	for i := range 10 * most { // a file that uses keys as values
		keys.See(fmt.Append(nil, "k", i), func() int { return i })
	}
	if n := len(keys.Unknown()); n != most {
		t.Errorf("%d unknown keys are kept, want %d", n, most)
	}
}
