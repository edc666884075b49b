package experiments_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/rewardutil/lvlm/lvlmtest"
)

// The loop runs through each kind of server, also where a file of the user's names the server: the stages read it too.
func TestICLLoopThroughServers(t *testing.T) {
	for _, kind := range []string{"vllm", "sglang"} {
		stand := lvlmtest.Start(t, &lvlmtest.Server{Kind: kind, Model: lvlmtest.Toy{}})
		dir := t.TempDir()
		preset := "# @package _global_\ndefaults:\n  - icl_shapes\nlvlm: {backend: " + kind + ", url: '" + stand.URL + "'}\nicl: {model: null}\n"
		if err := os.MkdirAll(filepath.Join(dir, "conf", "exp"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "conf", "exp", "mine.yaml"), []byte(preset), 0o644); err != nil {
			t.Fatal(err)
		}
		args := loop(filepath.Join(dir, "run"), "--config-dir="+filepath.Join(dir, "conf"), "icl.selectors=[sft]", "icl.seeds=1", "icl.shots=[1]")
		args[0] = "exp=mine"
		if r := run(t, args...); r.code != 0 {
			t.Fatalf("%s: exit %d: %s", kind, r.code, r.stderr)
		}
		table, err := os.ReadFile(filepath.Join(dir, "run", "comparison.csv"))
		if err != nil || strings.Count(string(table), "\n") != 4 {
			t.Errorf("%s: %v\n%s\nwant a row for each of 3 methods", kind, err, table)
		}
	}
}
