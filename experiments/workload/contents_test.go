//go:build !core

package workload

import (
	"os"
	"path/filepath"
	"testing"
)

// Two models have two digests, also in a folder whose name reads as a pattern: the store's key says whose numbers it holds.
func TestContentsOfFolders(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"plain", "v[1", "v[1]", "v*"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		sum, err := contents(filesOf(dir))
		if err != nil || seen[sum] {
			t.Errorf("%s: digest %s, %v: want one of its own", name, sum, err)
		}
		seen[sum] = true
	}
}
