package experiments_test

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"fulcrum/reports/record"
)

// A section with a kind is a phase as any other: it trains, has rows and checkpoints of its name, and resumes exactly.
func TestSectionsWithAKind(t *testing.T) {
	t.Parallel()
	args := tiny("report.plots=false", "checkpoint.every_steps=2", "data.shapes.train_queries=64", "rce.epochs=1", "grpo.epochs=1",
		"schedule=[rce,grpo,late_rce,my_grpo]", "+late_rce.kind=rce", "late_rce.epochs=1",
		"+my_grpo={kind:grpo,lr:1e-5,epochs:8,rollout:online,old_policy:batch}")
	whole := folder(t)
	mustRun(t, append(args, "hydra.run.dir="+whole)...)
	r, err := record.ReadRun(whole)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Phases(), []string{"rce", "grpo", "late_rce", "my_grpo"}; !slices.Equal(got, want) {
		t.Errorf("rows of the phases %v, want %v", got, want)
	}

	dir := folder(t)
	p := start(t, append(args, "hydra.run.dir="+dir)...)
	p.Until(func() bool { // one of them: a busy machine may look when the first is gone
		states, err := filepath.Glob(filepath.Join(dir, "checkpoints/my_grpo_epoch*_step*.state"))
		return err == nil && len(states) > 0
	})
	p.SignalGroup(syscall.SIGKILL)
	p.Wait()
	mustRun(t, "report", dir)
	mustRun(t, "resume", dir)
	outcomeOf(t, whole).Same(t, outcomeOf(t, dir), 1)
	plot := filepath.Join(dir, "plots", "losses.svg") // drawn by report, and anew at the end
	drawn := read(t, plot)
	if mustRun(t, "report", dir); read(t, plot) != drawn {
		t.Error("the plots of a report made meanwhile stay as they were")
	}
}

func TestKindsAreChecked(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"+mine.kind=grop: want one of grpo, rce, sft, got grop (did you mean grpo?)": {"+mine.kind=grop"},
		"mine.lrr=1: unknown key mine.lrr (did you mean mine.lr?)":                   {"+mine.kind=grpo", "mine.lrr=1"},
		"grpo_online.kind=rce: want one of grpo, got rce":                            {"grpo_online.kind=rce"},
		`unknown phase "mine"`:        {"schedule=[mine]"},
		"best is no name for a phase": {"schedule=[best]", "+best.kind=grpo"},
		"mine.kl.target_max":          {"+mine.kind=grpo", "mine.kl.target_max=0.001", "schedule=[rce,grpo,mine]"},
	} {
		refused(t, run(t, tiny(args...)...), 2, want)
	}
}
