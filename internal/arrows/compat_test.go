package arrows

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// compatWords are the words of compat=lever_plus, which reproduces another program with its defects.
var compatWords = regexp.MustCompile(`\b[Cc]ompat|[a-z]Compat|lever_plus|lever-plus|LeverPlus|leverplus\.`)

// compatRoom reports whether a file may hold them: the room itself, the verb, the key, and where hooks are filled.
func compatRoom(file string) bool {
	for _, room := range []string{"experiments/leverplus/", "cmd/run/annex", "cmd/run/verb", "experiments/job/config.go",
		"experiments/tasks/train.go", "experiments/workload/"} {
		if strings.HasPrefix(file, room) {
			return true
		}
	}
	return false
}

// compatElsewhere lists files outside that still hold them, for the reasons in docs/architecture.md. It may only get shorter.
func compatElsewhere() []string {
	return []string{
		"beamdata/beams_load.go", "beamdata/build.go", "beamdata/compat.go", "beamdata/file.go", "beamdata/legacy.go", "beamdata/load.go",
		"beamdata/options.go", "beamdata/record.go", "beamdata/rl.go", "experiments/tasks/evaluate.go",
		"rewardutil/advantage/compat.go", "rewardutil/vqa/accuracy.go", "rewardutil/vqa/evaluate.go",
	}
}

// TestCompatStaysInItsRoom: what reproduces another program's defects stands apart from what trains.
func TestCompatStaysInItsRoom(t *testing.T) {
	elsewhere := map[string]bool{}
	for _, file := range compatElsewhere() {
		elsewhere[file] = true
	}
	seen := 0
	for _, s := range sources(t) {
		if s.test || compatRoom(s.file) {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", s.file))
		if err != nil {
			t.Fatal(err)
		}
		seen++
		word := compatWords.FindString(string(text))
		if elsewhere[s.file] && word == "" {
			t.Errorf("%s is listed and says nothing of the reference", s.file)
		}
		if word != "" && !elsewhere[s.file] {
			t.Errorf("%s says %q: what reproduces the reference belongs to experiments/leverplus", s.file, word)
		}
	}
	if seen < 100 {
		t.Errorf("looked at %d files", seen)
	}
}
