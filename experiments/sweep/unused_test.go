package sweep

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUnused: a folder in which a controller was killed before there was a sweep may be taken, one with anything else may not.
func TestUnused(t *testing.T) {
	p := &plan{dir: t.TempDir()}
	for _, tc := range []struct {
		name string
		free bool
	}{{".sweep/.program.tmp1/run", true}, {".sweep/program/run", true}, {multirunFile, true}, {"0/run.log", false}} {
		path := filepath.Join(p.dir, tc.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := p.unused(); (err == nil) != tc.free {
			t.Errorf("with %s: %v", tc.name, err)
		}
	}
}
