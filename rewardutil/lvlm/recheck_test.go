package lvlm

import (
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/rewardutil/lvlm/lvlmtest"
)

// A server is asked again for a hundredth of the prompts, chosen by their digest. One whose numbers change then is named with the
// prompt, and what was scored is kept.
func TestScoresAreAskedAgain(t *testing.T) {
	const all = 1200
	for _, tc := range []struct {
		name    string
		lie     string
		drift   float64 // nats
		prompts func(all, sampled []Prompt) []Prompt
		strayed int64
		want    string // "" = no error
	}{
		{"an honest server", "", 0, func(all, _ []Prompt) []Prompt { return all }, 0, ""},
		{"a cache", "cache-order effects", 0.6, func(all, _ []Prompt) []Prompt { return all }, 3, "(3 of "},
		{"a cache, few prompts", "cache-order effects", 0.6, func(_, sampled []Prompt) []Prompt { return sampled[:2] }, 2, ""},
		{"a cache that changes much", "cache-order effects", 3, func(_, sampled []Prompt) []Prompt { return sampled[:1] }, 1, "(1 of 1 "},
	} {
		dir := filepath.Join(t.TempDir(), "store")
		stand := &lvlmtest.Server{Kind: "vllm", Drift: tc.drift}
		opt := serve(t, stand)
		opt.Store = &dir
		scorer, err := Open(t.Context(), opt, nil)
		if err != nil {
			t.Fatal(err)
		}
		stand.Lie = tc.lie
		stand.Forget()
		var chosen []Prompt
		for _, p := range prompts("", all) {
			key, err := scorer.key("recheck", p)
			if err != nil {
				t.Fatal(err)
			}
			if sampled(key) {
				chosen = append(chosen, p)
			}
		}
		if n := len(chosen); n < 6 || n > 15 {
			t.Fatalf("%d of %d prompts are chosen, want a hundredth", n, all)
		}
		asked := tc.prompts(prompts("", all), chosen)
		_, err = scorer.Score(t.Context(), asked)
		before := scorer.Counts()
		if err == nil {
			err = scorer.Settle(t.Context())
		}
		after := scorer.Counts()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), "vllm 9.8.7: query ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
		if tc.lie == "" && (before.Again != int64(len(chosen)) || after.Again != before.Again) || after.Strayed < tc.strayed ||
			tc.want == "" && after.Strayed != tc.strayed {
			t.Errorf("%s: %d chosen, counts %+v, then %+v", tc.name, len(chosen), before, after)
		}
		twice := 0
		for _, n := range stand.Asked() {
			twice += n - 1
		}
		if twice != int(after.Again) {
			t.Errorf("%s: %d prompts were asked twice, %d are counted", tc.name, twice, after.Again)
		}
		scorer.Close()
		stand.Lie = ""
		if scorer, err = Open(t.Context(), opt, nil); err != nil {
			t.Fatal(err)
		}
		stand.Forget()
		if _, err := scorer.Score(t.Context(), asked); err != nil || len(stand.Asked()) != 0 {
			t.Errorf("%s: %d prompts are not in the store, %v", tc.name, len(stand.Asked()), err)
		}
		scorer.Close()
	}
}
