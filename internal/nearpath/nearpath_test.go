package nearpath

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHint(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, path := range []string{"data/beams.json", "data/emb.pt", "outputs/2026-11-22/10-00-00/summary.json"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"data/beam.json":               " (did you mean data/beams.json?)",
		"dta/beams.json":               " (did you mean data/beams.json?)",
		"dta/other.json":               " (did you mean data?)",
		"data/questions.json":          "",
		"nowhere/beams.json":           " (there is no folder nowhere)",
		"nowhere/deep/beams.json":      " (there is no folder nowhere)",
		"outputs/2026-11-22/10-00-01":  " (did you mean outputs/2026-11-22/10-00-00?)",
		"output/2026-11-22/10-00-00/":  " (did you mean outputs/2026-11-22/10-00-00?)",
		"data/beams.json/further.json": " (did you mean data/beams.json?)",
		"":                             "",
	} {
		if got := Hint(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}
