package results

import (
	"slices"
	"strings"
	"testing"

	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

func eval(split, policy, phase string, epoch int, scores ...float64) record.Evaluation {
	e := record.Evaluation{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Metric: "reward", Shots: 2, Scores: scores}
	for i := range scores {
		e.QueryIDs = append(e.QueryIDs, int64(10+i))
	}
	return e
}

func TestStagesOrderAndReferences(t *testing.T) {
	evals := []record.Evaluation{
		eval("dev", "similarity", "", 0, .1, .2, .3),
		eval("val", "oracle", "", 0, 1, 1, 1),
		eval("val", "best_beam", "", 0, 1, 1, .9),
		eval("val", "init", "", 0, .1, .2, .3),
		eval("val", "grpo", "grpo", 1, .1, .1, .1), // superseded by epoch 2
		eval("val", "rce", "rce", 3, .2, .2, .3),
		eval("val", "grpo", "grpo", 2, .2, .3, .4),
		eval("val", "best", "grpo", 2, .2, .3, .4),
		eval("val", "similarity", "", 0, .1, .2, .2),
		eval("val", "random", "", 0, 0, 0, 0),
	}
	stages, err := Stages(evals, quick())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range stages {
		got = append(got, s.Split+" "+s.Title())
	}
	want := "val random, val similarity, val initial policy, val after rce (epoch 3), val after grpo (epoch 2), val best (grpo epoch " +
		"2), val best beam, val oracle, dev similarity"
	if strings.Join(got, ", ") != want {
		t.Errorf("order\n got %s\nwant %s", strings.Join(got, ", "), want)
	}
	if s := stages[1]; s.OverSimilarity != nil || s.OverInit == nil {
		t.Errorf("similarity is compared with itself or not with the initial policy: %+v", s)
	}
	best := stages[5]
	if best.OverSimilarity == nil || best.OverInit == nil || best.OverInit.Mean < 0.0999 || best.OverInit.Mean > 0.1001 {
		t.Errorf("best over init: %+v", best.OverInit)
	}
	rce, grpo := stages[3].OverInit, stages[4].OverInit
	if best.OverInit.PHolm != best.OverInit.P || rce.PHolm < min(1, 2*rce.P) || rce.P == 1 && rce.Family != 2 || grpo.PHolm != grpo.P ||
		grpo.Interval != best.OverInit.Interval {
		t.Errorf("the planned comparison stands alone, also where it is a phase's; other phases are corrected: best %g/%g, rce %g/%g, grpo %g/%g",
			best.OverInit.P, best.OverInit.PHolm, rce.P, rce.PHolm, grpo.P, grpo.PHolm)
	}
}

// Equal scores have one interval, corrected for the checkpoints that the best was chosen from, and leave the number of the phases alone.
func TestEqualScoresHaveOneInterval(t *testing.T) {
	best := eval("val", "best", "init", 0, .1, .2, .3, .5)
	best.ChosenFrom, best.Look = 7, stats.LookAt(2)
	for _, phase := range []string{"init", ""} { // older runs named none
		stages, err := Stages([]record.Evaluation{eval("val", "majority", "", 0, .1, .1, .3, .1), eval("val", "init", phase, 0, .1, .2, .3, .5),
			eval("val", "sft", "sft", 2, .1, .2, .3, .5), eval("val", "grpo", "grpo", 1, .1, .1, .2, .2), best}, quick())
		if err != nil {
			t.Fatal(err)
		}
		init, sft, grpo, last := stages[1].OverMajority, stages[2].OverMajority, stages[3].OverMajority, stages[4].OverMajority
		for _, p := range []*stats.Paired{init, sft} {
			if p.Interval != last.Interval || p.PHolm != last.PHolm || p.ChosenFrom != 7 || p.Look.N != 2 {
				t.Errorf("%+v, best %+v", p, last)
			}
		}
		if grpo.Family != 2 || grpo.ChosenFrom != 0 || stages[4].OverInit.Changed != 0 {
			t.Errorf("grpo %+v, want it corrected for two phases alone", grpo)
		}
	}
	// Where the best is another, the initial policy is judged as the phase with its scores.
	stages, err := Stages([]record.Evaluation{eval("val", "majority", "", 0, .1, .1, .3, .1), eval("val", "init", "", 0, .1, .2, .3, .5),
		eval("val", "sft", "sft", 2, .1, .2, .3, .5), eval("val", "grpo", "grpo", 1, .1, .3, .2, .7),
		eval("val", "best", "grpo", 1, .1, .3, .2, .7)}, quick())
	if err != nil || stages[1].OverMajority.PHolm != stages[2].OverMajority.PHolm || stages[2].OverMajority.Family != 2 {
		t.Errorf("%v: initial policy %+v, sft %+v", err, stages[1].OverMajority, stages[2].OverMajority)
	}
}

// A policy that is asked for by its name is not corrected for a choice of which another with its scores came out.
func TestNamedPolicyIsNotChosen(t *testing.T) {
	best := eval("val", "best", "grpo", 1, .1, .2, .3)
	best.ChosenFrom = 6
	run := &record.Run{Evaluations: []record.Evaluation{eval("val", "grpo", "grpo", 1, .1, .2, .3), best}}
	for policy, want := range map[string]int{"grpo": 0, "best": 6, "": 6} {
		if e, err := EvaluationOf(run, "val", "reward", policy); err != nil || e.ChosenFrom != want {
			t.Errorf("%q is chosen from %d checkpoints (%v), want %d", policy, e.ChosenFrom, err, want)
		}
	}
}

func TestStagesPairByQuery(t *testing.T) {
	a, b := eval("val", "similarity", "", 0, 1, 2, 3), eval("val", "best", "rce", 1, 30, 20, 10)
	b.QueryIDs = []int64{12, 11, 10}
	stages, err := Stages([]record.Evaluation{a, b}, quick())
	if err != nil {
		t.Fatal(err)
	}
	if got := stages[1].OverSimilarity; got.Mean != 18 || got.SD != 9 {
		t.Errorf("got mean %g and sd %g, want 18 and 9 (differences 9, 18, 27)", got.Mean, got.SD)
	}
	b.QueryIDs = []int64{12, 11, 99}
	if _, err := Stages([]record.Evaluation{a, b}, quick()); err == nil || !strings.Contains(err.Error(),
		"query 99 was scored on one side only") {
		t.Errorf("got %v", err)
	}
}

func TestEvalsAreReplacedByKey(t *testing.T) {
	dir := t.TempDir()
	for _, score := range []float64{1, 2} {
		if err := record.AppendEvals(dir, eval("val", "init", "", 0, score, score), eval("val", "rce", "rce", 1, score)); err != nil {
			t.Fatal(err)
		}
	}
	evals, err := record.ReadEvals(dir)
	if err != nil || len(evals) != 2 || evals[0].Mean() != 2 || evals[1].Mean() != 2 {
		t.Errorf("got %v, %v", evals, err)
	}
	bad := eval("val", "init", "", 0, 1)
	bad.QueryIDs = nil
	if err := record.AppendEvals(dir, bad); err == nil || !strings.Contains(err.Error(), "0 query ids and 1 scores") {
		t.Errorf("got %v", err)
	}
}

// Where similarity is worse than random it is no yardstick of the table any more; elsewhere random is none. The initial policy stays.
func TestBaselinesBelowRandom(t *testing.T) {
	table := func(similarity, initial float64) []record.StageResult {
		var evals []record.Evaluation
		of := func(policy, phase string, epoch int, mean float64) {
			scores := make([]float64, 60)
			for i := range scores {
				scores[i] = mean + 0.01*float64(i*len(policy)%7)
			}
			evals = append(evals, eval("val", policy, phase, epoch, scores...))
		}
		of("random", "", 0, 0.49)
		of("similarity", "", 0, similarity)
		of("init", "", 0, initial)
		of("rce", "rce", 2, 0.6)
		of("grpo", "grpo", 3, 0.7)
		of("best", "rce", 2, 0.6)
		of("oracle", "", 0, 0.9)
		stages, err := Stages(evals, quick())
		if err != nil {
			t.Fatal(err)
		}
		return stages
	}
	for _, tc := range []struct {
		similarity, initial float64
		shown, warn         string
	}{
		{0.3, 0.3, "random, initial policy", "Similarity and the initial policy are worse than drawing at random here: 0.3298 and 0.3297 " +
			"against 0.5205. A gain over them says little."},
		{0.6, 0.3, "similarity, random, initial policy", "The initial policy is worse than drawing at random here: 0.3297 against 0.5205. " +
			"A gain over it says little."},
		{0.6, 0.6, "similarity, initial policy", ""},
	} {
		stages := table(tc.similarity, tc.initial)
		var shown []string
		for _, y := range YardsticksOf(stages, stages) {
			shown = append(shown, y.Short)
		}
		if got := strings.Join(shown, ", "); got != tc.shown {
			t.Errorf("similarity at %g: yardsticks %s, want %s", tc.similarity, got, tc.shown)
		}
		if got := WarnBelowRandom(stages); got != tc.warn {
			t.Errorf("similarity at %g\n got %s\nwant %s", tc.similarity, got, tc.warn)
		}
		for _, s := range stages {
			asked := s.Policy != "random" && s.Policy != "oracle" && (StageRank(s.Policy) != rankPhase || tc.warn != "")
			if compared := s.OverRandom != nil; compared != asked {
				t.Errorf("%s is compared with random: %v", s.Policy, compared)
			}
			if step := s.OverPrevious; (step != nil) != (s.Policy == "grpo") {
				t.Errorf("%s is compared with the phase before: %+v", s.Policy, step)
			} else if step != nil && (step.Mean < 0.05 || step.Mean > 0.15 || !step.Interval.Excludes(0)) {
				t.Errorf("grpo over rce: %+v, want about 0.1", step)
			}
		}
	}
}

// A recorded order that lists the best candidate first is an oracle and no baseline.
func TestYardsticksOfABestFirstOrder(t *testing.T) {
	table := []record.StageResult{{Policy: record.PolicyRecorded, Metric: "reward"},
		{Policy: record.PolicyBest, Metric: "reward", OverRecorded: &stats.Paired{}}}
	for top, want := range map[float64]int{1: 0, 0.4: 1} {
		stages := append(slices.Clone(table), record.StageResult{Policy: record.PolicyRecorded, Metric: "top1_accuracy", Mean: top})
		if got := len(YardsticksOf(table, stages)); got != want {
			t.Errorf("top-1 accuracy %g: %d baselines, want %d", top, got, want)
		}
	}
}

func quick() stats.Options {
	opt := stats.DefaultOptions()
	opt.Resamples = 1000
	return opt
}
