package lvlm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// The loop whose stage is killed in the middle of its work, as the kernel does when memory runs out, names the stage and ends; a resume
// goes on inside it and comes to what an undisturbed loop does. So does one that is killed with its stage. The moments are what a
// stage has written: a clock would not know how fast the machine is.
func TestICLStagesKilledInside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := func(dir string) []string {
		return loop(dir, "icl.seeds=1", "icl.shots=[2]", "icl.baselines=[image]", "rce.epochs=2", "grpo.epochs=2")
	}
	k, whole, _ := wholeThen(t, dir, args)
	rows := func(text string) func(stage string) bool {
		return func(stage string) bool { return strings.Contains(readIf(filepath.Join(stage, "metrics.jsonl")), text) }
	}
	answers := func(more int64) func(stage string) bool {
		from := int64(-1)
		return func(stage string) bool {
			sizes := int64(0)
			found, _ := filepath.Glob(filepath.Join(filepath.Dir(stage), "store", "*.segment*"))
			for _, path := range found {
				if info, err := os.Stat(path); err == nil {
					sizes += info.Size()
				}
			}
			if from < 0 {
				from = sizes
			}
			return sizes > from+more
		}
	}
	type moment struct {
		stage string
		ready func(stage string) bool
		loop  bool // killed with it
	}
	moments := []moment{
		{"model", rows(`"kind":"step"`), false},
		{"beams", answers(4000), false},
		{"placebo_rce_grpo_0", rows(`"kind":"step","phase":"grpo","epoch":1,"step":1,`), false},
	}
	if !testing.Short() {
		moments = []moment{moments[0],
			{"model", rows(`"kind":"epoch"`), true},
			moments[1], {"beams", answers(2000), true}, {"beams", answers(2000), false},
			{"image_2shot", answers(300), false},
			{"placebo_rce_grpo_0", rows(`"kind":"eval"`), false},
			{"placebo_rce_grpo_0", rows(`"kind":"step","phase":"rce","epoch":2,"step":1,`), true}, moments[2],
			{"placebo_rce_grpo_0", rows(`"kind":"epoch","phase":"grpo","epoch":1,`), false},
			{"placebo_rce_grpo_0_2shot", answers(300), true}}
	}
	killed, hits := filepath.Join(dir, "killed"), 0
	for _, m := range moments {
		p := k.life(killed)
		stage := ""
		p.Until(func() bool {
			found, _ := filepath.Glob(filepath.Join(killed, "stages", m.stage+"-*"))
			if len(found) == 0 {
				return hasEnded(p)
			}
			stage = found[0]
			return m.ready(stage) || hasEnded(p)
		})
		stages := childrenOf(p.Cmd.Process.Pid)
		switch {
		case len(stages) == 0: // it has ended meanwhile
			p.Signal(syscall.SIGKILL)
			p.Wait()
			continue
		case m.loop:
			p.Signal(syscall.SIGKILL)
		default:
			syscall.Kill(stages[0], syscall.SIGKILL)
		}
		r := p.Wait()
		if m.loop {
			hits++
			continue
		}
		if _, done := os.Stat(filepath.Join(stage, "summary.json")); done == nil && r.Code == 0 {
			continue // it came too late
		}
		if hits++; r.Code != 1 || !strings.Contains(r.Stderr, "stage "+m.stage+": ") || !strings.Contains(r.Stderr, "job.log") {
			t.Errorf("%s is killed: exit %d: %s", m.stage, r.Code, r.Stderr)
		}
	}
	mustRun(t, "resume", killed)
	k.same(whole, killed, rounding)
	if n := len(moments); hits < n/2 {
		t.Errorf("%d of %d kills came while the stage was at work", hits, n)
	}
	if log := read(t, filepath.Join(killed, "run.log")); strings.Count(log, "model: done in") > 1 {
		t.Errorf("the model was trained again:\n%s", log)
	}
	t.Logf("%d of %d kills inside stages, %d lives", hits, len(moments), k.lives)
}

// childrenOf returns the processes that a process has started.
func childrenOf(pid int) (children []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		for _, word := range strings.Fields(readIf(list)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// A loop that lacks what its first stage needs says so before it reads anything, and leaves no folder.
func TestICLLoopWithoutEncoder(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	weights := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	r := run(t, "exp=icl_loop", "hydra.run.dir="+dir, "lvlm.path="+weights, "data=vqa", "data.root=/no/such/folder")
	if r.Code != 2 || !strings.Contains(r.Stderr, "run: encoder.path: the stage embed needs a CLIP folder") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is there", dir)
	}
}
