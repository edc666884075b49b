package slurmtest_test

import (
	"os/exec"
	"strings"
	"testing"

	"fulcrum/experiments/launcher/slurmtest"
)

// The cluster runs a job, comes back after its daemons were killed, and leaves no process behind.
func TestCluster(t *testing.T) {
	conf := ""
	t.Run("lives", func(t *testing.T) {
		c := slurmtest.Start(t)
		conf = c.Conf
		if out := c.Run("srun", "echo", "hello"); out != "hello" {
			t.Errorf("srun prints %q", out)
		}
		id := c.Run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 100")
		c.KillNode()
		c.StartNode()
		c.StopController()
		c.StartController()
		if state := c.Run("squeue", "--noheader", "--format=%T", "--jobs="+id); state != "RUNNING" {
			t.Errorf("after restarts the job is %s", state)
		}
	})
	if conf == "" {
		t.Skip("no cluster")
	}
	out, _ := exec.Command("/bin/sh", "-c", `for p in /proc/[0-9]*; do tr '\0' '\n' <$p/environ 2>/dev/null | grep -qxF "SLURM_CONF=$1" && cat $p/cmdline | tr '\0' ' '; done; ps -A -o comm= | grep -c slurmstepd`, "sh", conf).Output()
	if got := strings.TrimSpace(string(out)); got != "0" {
		t.Errorf("left behind: %s", got)
	}
}
