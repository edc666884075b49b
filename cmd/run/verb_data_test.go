package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file whose reward is a field of its own is read with the key that a run would be given.
func TestDataInspectTakesKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rl.json")
	text := `{"7":{"candidate_pool_ids":[5,3],"pointer_candidates":[{"pointer":[5],"gain":0.5},{"pointer":[3],"gain":1}]}}`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	schema, err := annexes().app.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ key, want, fails string }{
		{"data.reward.mode=hard_plus_soft", "(data.reward.field=NAME takes any recorded number as the reward)", "a run would refuse this"},
		{"data.reward.field=gain", "reward gain             min 0.5, median 1, mean 0.75, max 1", ""},
		{"data.reward.feld=gain", "", "did you mean data.reward.field?"},
		{"seed=1", "", "data.KEY=VALUE"},
	} {
		var out, errOut bytes.Buffer
		err := sessionOf(fakeApp{schema: schema}, &out, &errOut).call([]string{"data", "inspect", path, tc.key})
		said := strings.Join(strings.Fields(out.String()), " ")
		if !strings.Contains(said, strings.Join(strings.Fields(tc.want), " ")) || (err == nil) != (tc.fails == "") ||
			err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: %v\n%s", tc.key, err, out.String())
		}
	}
}
