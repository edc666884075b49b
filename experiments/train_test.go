package experiments_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// selector.shot_num = null takes the checkpoint's number of shots; a number given wins over it. What is
// evaluated and what the new checkpoints say agree.
func TestShotsOfACheckpoint(t *testing.T) {
	t.Parallel()
	brief := func(more ...string) []string {
		return with(tiny("schedule=[rce]", "rce.epochs=1", "report.plots=false", "logging.tensorboard=false"), more)
	}
	three := folder(t)
	mustRun(t, brief("selector.shot_num=3", "hydra.run.dir="+three)...)
	for _, tc := range []struct{ override, want string }{
		{"", "3"}, // the data has 2
		{"selector.shot_num=1", "1"},
	} {
		t.Run("shots "+tc.want, func(t *testing.T) {
			dir := folder(t)
			args := brief("init.checkpoint="+three, "hydra.run.dir="+dir)
			if tc.override != "" {
				args = append(args, tc.override)
			}
			mustRun(t, args...)
			evals := read(t, filepath.Join(dir, "evals.jsonl"))
			if n, all := strings.Count(evals, `"shots":`+tc.want+","), strings.Count(evals, "\n"); n != all || n < 5 {
				t.Errorf("%d of %d evaluations are of %s shots", n, all, tc.want)
			}
			for _, name := range []string{"init_epoch0", "rce_epoch1"} {
				said := mustRun(t, "checkpoint", "inspect", filepath.Join(dir, "checkpoints", name+".safetensors")).Stdout
				if !strings.Contains(said, "selector.shot_num = "+tc.want+"\n") {
					t.Errorf("%s: want selector.shot_num = %s:\n%s", name, tc.want, said)
				}
			}
		})
	}
}
