package regular

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGlobTakesTheFolderAsItIs(t *testing.T) {
	for _, name := range []string{"plain", "schedule=[rce,grpo]", `a\b?*`} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Join(dir, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
		want := filepath.Join(dir, "x", "one.pt")
		if err := os.WriteFile(want, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := Glob(dir, "x/*.pt"); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v (%v), want %s", name, got, err, want)
		}
	}
}
