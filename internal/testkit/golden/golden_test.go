package golden

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// A program that a test starts handles SIGHUP and SIGINT, although the test was started under nohup or in the
// background of a shell.
func TestDefaultSignals(t *testing.T) {
	const childEnv = "GOLDEN_TEST_CHILD"
	if os.Getenv(childEnv) != "" {
		DefaultSignals()
		out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
		if err != nil {
			t.Fatal(err)
		}
		var ignored uint64
		if _, err := fmt.Sscanf(string(out), "SigIgn: %x", &ignored); err != nil || ignored&3 != 0 { // bits 0 and 1
			t.Errorf("%q, %v: a child ignores SIGHUP or SIGINT", out, err)
		}
		return
	}
	cmd := exec.Command("sh", "-c", `trap '' HUP INT; exec "$0" -test.run '^TestDefaultSignals$'`, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
