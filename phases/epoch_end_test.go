package phases

import (
	"os"
	"path/filepath"
	"testing"
)

// A run's folder may be called as its overrides are: brackets in it are no pattern.
func TestMidEpochStatesGoFromAnyFolder(t *testing.T) {
	for _, name := range []string{"plain", "schedule=[rce,grpo]"} {
		s := &scheduler{ckpt: filepath.Join(t.TempDir(), name)}
		for _, state := range []string{"rce_epoch1_step2", "rce_epoch1_step4"} {
			if err := os.MkdirAll(filepath.Join(s.ckpt, state+stateSuffix), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.dropMidEpoch("rce_epoch1_step4" + stateSuffix); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(s.ckpt); err != nil || len(left) != 1 || left[0].Name() != "rce_epoch1_step4"+stateSuffix {
			t.Errorf("in %s are %v (%v), want the newer state alone", name, left, err)
		}
	}
}
