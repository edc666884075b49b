package arms

import (
	"math"
	"strings"
	"testing"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// controlledRun is a run whose trained policy gains so much on a question of dev, give or take a hundredth.
func controlledRun(control string, seed int, gain float64) *record.Run {
	before, after := make([]float64, 81), make([]float64, 81)
	shift := map[string]int{"placebo": 1, "majority": 2}[control]
	for q := range before {
		before[q] = 0.3 + 0.01*float64(q%7)
		after[q] = before[q] + gain + 0.01*float64((q/[]int{1, 3, 9}[seed]+shift)%3-1)
	}
	return &record.Run{Tree: map[string]any{"control": control, "seed": seed, "grpo": map[string]any{"lr": 0.001}},
		Evaluations: []record.Evaluation{eval("dev", "init", "", 0, before...), eval("dev", "grpo", "grpo", 1, after...)}}
}

// The toy: training gains 0.01 whatever is rewarded, 0.02 more for agreeing with itself, and 0.07 more for the truth.
func TestThreeTerms(t *testing.T) {
	gains := map[string]float64{"none": 0.10, "placebo": 0.01, "majority": 0.03}
	for _, order := range [][]string{{"none", "placebo", "majority"}, {"majority", "none", "placebo"}, {"placebo", "majority", "none"}} {
		for _, seeds := range []int{1, 3} {
			var runs []*record.Run
			for _, control := range order {
				for seed := range seeds {
					runs = append(runs, controlledRun(control, seed, gains[control]))
				}
			}
			if split, missing := Controls(ArmsOf(runs)); !split || missing != "" {
				t.Fatalf("%v: split %v, missing %q", order, split, missing)
			}
			table := ArmTables(ArmsOf(runs), nil, 0)[0]
			if len(table.split) != 1 {
				t.Fatalf("%v: %d splits, want 1", order, len(table.split))
			}
			sum := 0.0
			for i, want := range []float64{0.01, 0.02, 0.07} {
				c := table.split[0].terms[i].c
				if table.split[0].terms[i].turned {
					c = c.reversed()
				}
				if sum += c.Mean; math.Abs(c.Mean-want) > 1e-9 || c.Interval.Low > want || c.Interval.High < want || c.Interval.Low < want-0.01 {
					t.Errorf("%v, %d seeds: term %d is %g in %v, want %g", order, seeds, i+1, c.Mean, c.Interval, want)
				}
			}
			if gain := table.split[0].none.Gain.Mean; math.Abs(sum-gain) > 1e-9 {
				t.Errorf("%v: the terms add up to %g, want the gain %g", order, sum, gain)
			}
			var d page.Document
			table.WriteTable(&d)
			if text := d.Text(); !strings.Contains(text, "Told from 0: null (+0.0100), elicitation (+0.0200) and reward (+0.0700).") {
				t.Errorf("%v, %d seeds: %s", order, seeds, text)
			}
		}
	}
}

// Runs that differ in more than the control are not split, and the report says what is missing.
func TestThreeTermsWantOneSetting(t *testing.T) {
	other := controlledRun("majority", 0, 0.03)
	other.Tree = map[string]any{"control": "majority", "seed": 0, "grpo": map[string]any{"lr": 0.1}}
	runs := []*record.Run{controlledRun("none", 0, 0.1), controlledRun("placebo", 0, 0.01), other}
	split, missing := Controls(ArmsOf(runs))
	if split || !strings.Contains(missing, "here are majority, none and placebo") {
		t.Errorf("split %v, missing %q", split, missing)
	}
	if table := ArmTables(ArmsOf(runs), nil, 0)[0]; len(table.split) != 0 {
		t.Errorf("split %v", table.split)
	}
	if split, missing := Controls(ArmsOf(runs[:1])); split || missing != "" {
		t.Errorf("one control: split %v, missing %q", split, missing)
	}
}

// TestThreeTermsWantOneStart: where the arms began with different policies the terms do not add up to the gain, and none is shown.
func TestThreeTermsWantOneStart(t *testing.T) {
	var runs []*record.Run
	for i, control := range []string{"none", "placebo", "majority"} {
		run := controlledRun(control, i, 0.1)
		if control == "placebo" {
			for k := range run.Evaluations[0].Scores {
				run.Evaluations[0].Scores[k] += 0.05
			}
		}
		runs = append(runs, run)
	}
	table := ArmTables(ArmsOf(runs), nil, 0)[0]
	if len(table.split) != 0 || !strings.Contains(table.unsplit, "began with different policies") {
		t.Errorf("%d splits, %q", len(table.split), table.unsplit)
	}
}

// A table shows the baselines of all its arms: not the initial policy of the first one where another began elsewhere.
func TestBaselinesAreEverybodys(t *testing.T) {
	for shift, want := range map[float64]int{0: 1, 0.05: 0} {
		runs := []*record.Run{controlledRun("none", 0, 0.1), controlledRun("majority", 0, 0.1)}
		for k := range runs[1].Evaluations[0].Scores {
			runs[1].Evaluations[0].Scores[k] += shift
		}
		if got := ArmTables(ArmsOf(runs), nil, 0)[0].shared(); len(got) != want {
			t.Errorf("starts that are %g apart: %d baselines of all, want %d", shift, len(got), want)
		}
	}
}

// Similarity has the same score by every seed, so that arms of other seeds tell too when it has not; a draw at random has not.
func TestBaselinesDiffer(t *testing.T) {
	of := func(name string, seed int64, mean float64) Arm {
		return Arm{Name: name, Seeds: []int64{seed}, Scores: [][]float64{{mean, mean}}}
	}
	for name, want := range map[string]bool{record.PolicySimilarity: true, record.PolicyRandom: false, "initial policy": false} {
		if got := of(name, 0, 0.3).differs(of(name, 1, 0.35)); got != want || of(name, 0, 0.3).differs(of(name, 1, 0.3)) {
			t.Errorf("%s of two seeds: differs %v, want %v", name, got, want)
		}
	}
}

// What a table says that a look has to spend is what its verdicts spend: between arms of two looks the later one's level is shared.
func TestTableSaysWhatItsLookSpends(t *testing.T) {
	runs := []*record.Run{controlledRun("none", 0, 0.1), controlledRun("majority", 0, 0.1)}
	runs[0].Evaluations[1].Look, runs[1].Evaluations[1].Look = stats.LookAt(5), stats.LookAt(4)
	var d page.Document
	ArmTables(ArmsOf(runs), nil, 0)[0].WriteTable(&d)
	if text := d.Text(); !strings.Contains(text, "look 5 at these questions") || !strings.Contains(text, "this one has 0.00024 of it") {
		t.Error(text)
	}
}
