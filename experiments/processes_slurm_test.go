package experiments_test

import (
	"os/exec"
	"strings"
	"testing"

	"fulcrum/internal/testkit/runtest"
	"fulcrum/internal/testkit/slurmtest"
)

// TestOnSlurmProcesses: the tasks of srun are the processes of a run, with the bytes of one process. What cannot be shared is refused.
func TestOnSlurmProcesses(t *testing.T) {
	slurmtest.Start(t)
	one, two := runtest.Folder(t), runtest.Folder(t)
	runtest.MustRun(t, spread(1, onSamples(), one)...)
	srun := func(args ...string) (string, error) {
		out, err := exec.Command("srun", append([]string{"--ntasks=2", "--overcommit", runtest.Program(t)}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := srun(spread(1, onSamples(), two)...); err != nil || !strings.Contains(out, "2 processes, 4 shards a step") {
		t.Fatalf("%v\n%s", err, out)
	}
	runtest.OutcomeOf(t, one).Same(t, runtest.OutcomeOf(t, two), 0)
	for _, tc := range []struct {
		args []string
		said string
	}{
		{runtest.Tiny(), "srun=2: want at most 1, the shards of a step"},
		{[]string{"task=predict", "init.checkpoint=" + one, "predict.out=" + t.TempDir() + "/p.jsonl"},
			"runs in one process, and srun has started 2"},
		{append([]string{"-m", "seed=1,2"}, runtest.Tiny()...), "a sweep is started alone"},
	} {
		if out, err := srun(tc.args...); err == nil || !strings.Contains(out, tc.said) {
			t.Errorf("%v: %v, want %q:\n%s", tc.args, err, tc.said, out)
		}
	}
}
