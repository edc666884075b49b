package experiments_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"fulcrum/internal/testkit/runtest"
	"fulcrum/internal/testkit/slurmtest"
)

// TestOnSlurmProcesses: the tasks of srun are the processes of a run, with the bytes of one process. What cannot be shared is refused.
func TestOnSlurmProcesses(t *testing.T) {
	slurmtest.Start(t)
	tasks := 2
	srun := func(args ...string) (string, error) {
		args = append([]string{fmt.Sprint("--ntasks=", tasks), "--overcommit", "--kill-on-bad-exit", runtest.Program(t)}, args...)
		out, err := exec.Command("srun", args...).CombinedOutput()
		return string(out), err
	}
	one, eight := runtest.Folder(t), "parallel.shards=8"
	for name, args := range map[string][]string{"pointer": onSamples(), "t5": runtest.TinySummaries("t5"), "vl": runtest.TinyShapes()} {
		alone := runtest.Folder(t)
		if name == "pointer" {
			alone = one
		}
		runtest.MustRun(t, spread(1, args, alone, eight)...)
		for _, tasks = range []int{2, 3, 4, 8} {
			if testing.Short() && (tasks > 2 || name != "pointer") {
				continue
			}
			dir := runtest.Folder(t)
			out, err := srun(spread(1, args, dir, eight)...)
			if err != nil || !strings.Contains(out, fmt.Sprint(tasks, " processes, 8 shards a step")) {
				t.Fatalf("%s by %d: %v\n%s", name, tasks, err, out)
			}
			runtest.OutcomeOf(t, alone).Same(t, runtest.OutcomeOf(t, dir), 0)
		}
	}
	tasks = 2
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
