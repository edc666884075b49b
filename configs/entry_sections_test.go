package configs

import (
	"strings"
	"testing"
)

// TestSectionOfAnEntry: what an entry of a table brings has no kind, stands where it says, and is decoded into the entry's own type.
func TestSectionOfAnEntry(t *testing.T) {
	defaults := func() *phasesOptions {
		return &phasesOptions{Schedule: []string{"grpo"}, GRPO: defaultApp().GRPO,
			Others: map[string]Section{"toy": {Options: &sftOptions{LR: 0.5}, Help: "task=toy", Before: "last"}}}
	}
	s, err := SchemaOf(defaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.Keys(), " "); !strings.HasSuffix(got, " toy.lr last") || s.Help("toy") != "task=toy" {
		t.Errorf("keys %s, help %q", got, s.Help("toy"))
	}
	for _, tc := range []struct{ override, want string }{
		{"toy.lr=0.25", ""},
		{"toy.lr=2", "toy.lr=2: want a number in (0, 1)"},
		{"+toy.kind=sft", "toy.kind"},
		{"toy.l=2", "did you mean toy.lr?"},
	} {
		req := request("--- config\n", tc.override)
		req.Schema = s
		c, err := Compose(req)
		if err == nil {
			got := defaults()
			if err = c.Decode(got); err == nil && got.Others["toy"].Options.(*sftOptions).LR != 0.25 {
				t.Errorf("%s: decoded %+v", tc.override, got.Others["toy"].Options)
			}
		}
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.override, err, tc.want)
		}
	}
	bad := defaults()
	bad.Others["toy"] = Section{Options: &sftOptions{}, Before: "nowhere"}
	if _, err := SchemaOf(bad, nil); err == nil {
		t.Error("a section stands before a field that there is not")
	}
}
