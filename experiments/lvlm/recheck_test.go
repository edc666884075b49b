package lvlm

import (
	"path/filepath"
	"strings"
	"testing"
)

// A server is asked again for a hundredth of the prompts, and for 20 at least. One whose numbers change then is named with the prompt and
// both scores, and nothing of it is kept; what an honest one said is.
func TestScoresAreAskedAgain(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lie     string
		drift   float64 // nats
		n       int     // prompts
		strayed int64   // at least
		want    string  // "" = no error
	}{
		{"an honest server", "", 0, 400, 0, ""},
		{"a cache", "cache-order effects", 0.6, 100, 3, " prompts asked again differ)"},
		{"a cache, few prompts", "cache-order effects", 0.6, 3, 3, "(3 of 3 "},
		{"a cache and one prompt", "cache-order effects", 0.6, 1, 1, ""},
		{"a cache that changes much", "cache-order effects", 3, 1, 1, "(1 of 1 "},
	} {
		dir := filepath.Join(t.TempDir(), "store")
		stand := &Server{Kind: "vllm", Drift: tc.drift}
		opt := serve(t, stand)
		opt.Store = &dir
		scorer, err := Open(t.Context(), opt, nil)
		if err != nil {
			t.Fatal(err)
		}
		stand.Lie = tc.lie
		stand.Forget()
		asked := prompts("", tc.n)
		_, err = scorer.Score(t.Context(), asked)
		if err == nil {
			_, err = scorer.Settle(t.Context())
		}
		after := scorer.Counts()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), "vllm 9.8.7: query ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
		if after.Again < int64(min(20, tc.n)) && tc.want == "" || after.Again > 200 || after.Strayed < tc.strayed ||
			tc.lie == "" && after.Strayed > 0 {
			t.Errorf("%s: counts %+v", tc.name, after)
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
		want := 0
		if tc.want != "" {
			want = tc.n
		}
		if _, err := scorer.Score(t.Context(), asked); err != nil || len(stand.Asked()) != want {
			t.Errorf("%s: %d prompts are asked in the next job, want %d, %v", tc.name, len(stand.Asked()), want, err)
		}
		scorer.Close()
	}
}

// A job that is killed before its server has passed leaves what it was told to the next one, which has it vouched for too: a lie of the
// first is found by the second.
func TestLiesOfKilledJobs(t *testing.T) {
	dir := t.TempDir()
	stand := &Server{Kind: "vllm"}
	opt := serve(t, stand)
	opt.Store = &dir
	first, err := Open(t.Context(), opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	first.recheck.server = nil // it is killed before it asks again
	stand.Lie = "another request's numbers"
	for _, p := range prompts("", 50) {
		said, err := first.said(t.Context(), true, []Prompt{p})
		key, bad := first.key("score", p)
		if err != nil || bad != nil || first.store.Hold(key, said[0]) != nil {
			t.Fatal(err, bad)
		}
	}
	first.store.Close() // as a kill does
	stand.Lie = ""
	stand.Forget()
	second, err := Open(t.Context(), opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	stand.Forget()
	_, err = second.Score(t.Context(), prompts("", 50))
	if c := second.Counts(); err == nil && c.Asked > 0 {
		t.Errorf("asked again: %+v", c)
	}
	if err == nil {
		_, err = second.Settle(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "when asked again later") {
		t.Errorf("got %v", err)
	}
	if second.store.Len() > 0 {
		t.Errorf("%d values are left in the store", second.store.Len())
	}
}
