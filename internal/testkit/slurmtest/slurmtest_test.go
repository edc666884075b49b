package slurmtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulcrum/internal/testkit/slurmtest"
)

// The cluster runs a job, comes back after its daemons were killed, and leaves no process behind.
func TestOnSlurmCluster(t *testing.T) {
	conf := ""
	t.Run("lives", func(t *testing.T) {
		c := slurmtest.Start(t)
		conf = c.Conf
		if out := c.Run("srun", "echo", "hello"); out != "hello" {
			t.Errorf("srun prints %q", out)
		}
		id := c.Run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 100")
		state := func() string { return c.Run("squeue", "--noheader", "--format=%T", "--jobs="+id) }
		for end := time.Now().Add(20 * time.Second); state() != "RUNNING" && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
		c.KillNode()
		c.StartNode()
		c.StopController()
		c.StartController()
		if got := state(); got != "RUNNING" {
			t.Errorf("after restarts the job is %s", got)
		}
	})
	if conf == "" {
		t.Skip("no cluster")
	}
	dirs, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range dirs {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, filepath.Dir(conf)+"/") {
			t.Errorf("%s is left with %s open", filepath.Dir(filepath.Dir(fd)), target)
		}
	}
	if _, err := os.Stat(filepath.Dir(conf)); err == nil {
		t.Errorf("%s is left", filepath.Dir(conf))
	}
}
