package experiments

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"fulcrum/experiments/runfolder"
)

// What a killed rank has left is removed; the folder of one at work, of a new one, and of another program are not.
func TestFoldersOfKilledRanks(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	made := func(name string, age time.Duration) string {
		dir := filepath.Join(os.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := runfolder.Claim(dir)
		if err != nil {
			t.Fatal(err)
		}
		if age > 0 {
			f.Release()
		} else {
			t.Cleanup(f.Release)
		}
		then := time.Now().Add(-time.Hour)
		if age > 0 {
			then = time.Now().Add(-age)
		}
		if err := os.Chtimes(filepath.Join(dir, ".lock"), then, then); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	killed, atWork, fresh, other := made("fulcrum-rank-1", time.Hour), made("fulcrum-rank-2", 0), made("fulcrum-rank-3", time.Second),
		made("mine", time.Hour)
	forgetKilled()
	for dir, want := range map[string]bool{killed: false, atWork: true, fresh: true, other: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", dir, err == nil, want)
		}
	}
}
