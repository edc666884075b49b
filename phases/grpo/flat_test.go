package grpo

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"fulcrum/internal/hostmem"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector/pointer"
)

// gauge is a Recorder that looks at memory every so many steps and keeps nothing else.
type gauge struct {
	t        *testing.T
	every    int
	phase    string
	live     int // tensors alive at the phase's first look
	resident int // kB at the phase's second look: by then every size of buffer has been seen
	looks    int
	steps    int
}

// allowance is what memory may wander by within a phase: 1 kB leaked a step shows in 4,000 steps.
const allowance = 4 << 10 // kB

func (g *gauge) Record(kind, phase string, _, step, _ int, _ map[string]any) error {
	if kind != "step" {
		return nil
	}
	g.steps++
	if phase != g.phase {
		g.phase, g.looks = phase, 0
	}
	if step%g.every != 0 {
		return nil
	}
	debug.FreeOSMemory() // Go's garbage is not what is looked for
	live, kb := torchx.Live(), residentKB(g.t)
	g.looks++
	switch {
	case g.looks == 1:
		g.live = live
	case g.looks == 2:
		g.resident = kb
	case kb > g.resident+allowance:
		return fmt.Errorf("resident memory grew from %d kB to %d kB", g.resident, kb)
	}
	if live != g.live {
		return fmt.Errorf("%d tensors alive, %d at the first look", live, g.live)
	}
	return nil
}

func (g *gauge) Scores(phases.Scores) error                              { return nil }
func (g *gauge) Completions(string, int, int, []phases.Completion) error { return nil }
func (g *gauge) Mark() (int, int, int, error)                            { return 0, 0, 0, nil }

func residentKB(t *testing.T) int {
	t.Helper()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc: ", err)
	}
	kb := int(hostmem.Resident() / 1024)
	if kb == 0 {
		t.Fatal("no VmRSS")
	}
	return kb
}

// TestMemoryIsFlat makes 10,000 optimizer steps (1,000 in the short form) on single queries of ever
// changing shapes, through the scheduler: RCE, GRPO on recorded groups, GRPO on sampled groups.
func TestMemoryIsFlat(t *testing.T) {
	queries := 1000
	if testing.Short() {
		queries = 100
	}
	torchx.Attach(1)
	before := torchx.Live()
	opt := pointer.DefaultOptions()
	opt.HiddenDim = 16
	p, err := pointer.New(opt, 16, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	initial := p.Clone()
	train := phasetest.Ragged(t, queries)
	rec := &gauge{t: t, every: queries / 5}
	env := &phases.Env{Policy: p, Initial: initial, Seed: 4, Rec: rec, Dir: t.TempDir(), ConfigHash: "hash", Data: phases.Data{
		Val: pointer.NewSource(train.Set().Subset([]int{0, 1, 2, 3})), Shots: 2, Shuffle: true, Advantage: advantage.DefaultOptions(),
		ValLoss: phases.ValLoss{Temperature: 0.5}}}
	rceOpt, grpo, online := rce.DefaultOptions(), DefaultOptions(), DefaultOptions()
	rceOpt.Epochs, grpo.Epochs, online.Epochs = 4, 4, 2
	grpo.OldPolicy = "epoch_start"
	online.Rollout, online.OldPolicy = "online", "batch"
	sched := schedule.DefaultLROptions()
	plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Phases: []phases.Phase{
		rce.New(rceOpt, phases.DefaultOptimOptions(), sched, train, 1, 0),
		New("grpo", grpo, phases.DefaultOptimOptions(), sched, train, 1),
		New("grpo_online", online, phases.DefaultOptimOptions(), sched, train, 1),
	}}
	if _, err := phases.Run(context.Background(), plan, env, nil); err != nil {
		t.Fatal(err)
	}
	if rec.steps != 10*queries {
		t.Errorf("%d steps, want %d", rec.steps, 10*queries)
	}
	p.Free()
	initial.Free()
	if live := torchx.Live() - before; live > 1 { // the embedding table stays for other policies
		t.Errorf("%d tensors outlived the run and its policies", live)
	}
	t.Logf("%d steps, at last %d kB resident", rec.steps, residentKB(t))
}
