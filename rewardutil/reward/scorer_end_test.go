package reward

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/rewardutil/scorer"
)

// A kept scorer must not outlive the program, however that ends. This test starts itself as the program.
func TestScorerDiesWithItsParent(t *testing.T) {
	const variable = "FULCRUM_TEST_SCORER_PID_FILE"
	if file := os.Getenv(variable); file != "" {
		o := scorer.DefaultOptions()
		o.Command, o.Keep = []string{"sh", "-c", "echo $$ > " + file + "; read -r line; echo 1; exec sleep 600"}, true
		if _, err := build(t, o).Score(context.Background(), []Item{{Completion: "a"}}); err != nil {
			t.Fatal(err)
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	file := filepath.Join(t.TempDir(), "pid")
	parent := exec.Command(os.Args[0], "-test.run=^TestScorerDiesWithItsParent$")
	parent.Env = append(os.Environ(), variable+"="+file)
	if said, err := parent.CombinedOutput(); err == nil {
		t.Fatalf("the program was not killed: %s", said)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	golden.Ended(t, pid)
}

// What a program has started ends with it where it is killed: after its time, at an interruption, and kept ones at the end of all.
func TestScorerTakesItsChildrenAlong(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		timeout      float64
		cancel       bool
	}{
		{"late", "sleep 1000", 5, false},
		{"cancelled", "sleep 1000", 600, true},
		{"cancelled, and gone before", "kill -INT $$", 600, true}, // as by a terminal's Ctrl-C
		{"kept", "while read -r line; do echo 1; done", 600, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			o := scorer.DefaultOptions()
			o.Command = []string{"sh", "-c", "sh -c 'sleep 1000 & echo $! > " + file + ".new'; mv " + file + ".new " + file + "; " + tc.script}
			o.Keep, o.Timeout, o.Retries = tc.name == "kept", tc.timeout, 0
			s, err := scorer.New(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := make(chan error)
			go func() {
				_, err := s.Score(ctx, []scorer.Item{{Completion: "a"}})
				asked <- err
			}()
			var text []byte
			for end := time.Now().Add(2 * time.Minute); len(text) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
				text, _ = os.ReadFile(file)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if tc.cancel {
				cancel()
			}
			if err := <-asked; (err == nil) != o.Keep {
				t.Errorf("got %v", err)
			}
			if o.Keep && syscall.Kill(pid, 0) != nil {
				t.Error("it ended before")
			}
			s.Close()
			golden.Ended(t, pid)
		})
	}
}
