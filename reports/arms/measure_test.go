package arms

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"fulcrum/reports/record"
)

// Scores of one name and the same questions are no differences of policies where other rewards made them.
func TestOtherRewards(t *testing.T) {
	run := func(config string, random, trained []float64) *record.Run {
		var r record.Run
		if err := yaml.Unmarshal([]byte(config), &r.Tree); err != nil {
			t.Fatal(err)
		}
		ids := []int64{7, 8, 9}
		for policy, scores := range map[string][]float64{record.PolicyRandom: random, record.PolicyBest: trained} {
			if scores != nil {
				r.Evaluations = append(r.Evaluations, record.Evaluation{Split: "val", Metric: "recorded_reward", Policy: policy, Phase: "grpo",
					Epoch: 1, QueryIDs: ids, Scores: scores})
			}
		}
		return &r
	}
	program := func(digest string) *record.Run {
		r := run("rewards: {external: {weight: 1.0, command: [python3, judge.py]}}", nil, nil)
		r.Summary = &record.Summary{Data: record.DataSummary{Scripts: map[string]string{"judge.py": digest}}}
		return r
	}
	recorded := run("seed: 1", []float64{.1, .2, .3}, []float64{.5, .5, .5})
	rouge := run("rewards: {scale: 1, rouge: {weight: 1.0, types: [rouge1]}, judge: {weight: 0.0, model: a, parallel: 8}}", nil, nil)
	for _, tc := range []struct {
		name   string
		a, b   *record.Run
		metric string
		want   string
	}{
		{"another policy, the same records", recorded, run("seed: 2", []float64{.1, .2, .3}, []float64{.9, .9, .9}), "recorded_reward", ""},
		{"two questions pay more", recorded, run("seed: 1", []float64{.1, .4, .6}, []float64{.5, .5, .5}), "recorded_reward",
			"recorded for 2 of 3 questions"},
		{"by other rewards another candidate is the best", recorded, run("", []float64{.1, .4, .6}, nil), "top1_accuracy", "2 of 3"},
		{"no records at all", recorded, run("", nil, []float64{.5, .5, .5}), "recorded_reward", ""},
		{"another term", rouge, run("rewards: {scale: 1, rouge: {weight: 1.0, types: [rougeL]}}", nil, nil), "reward", "(rewards.rouge.types)"},
		{"another weight", rouge, run("rewards: {rouge: {weight: 0.5, types: [rouge1]}}", nil, nil), "reward", "(rewards.rouge.weight)"},
		{"a term more", rouge, run("rewards: {rouge: {weight: 1.0}, length: {weight: 0.1}}", nil, nil), "reward", "(rewards.length.weight)"},
		{"a term that counts for nothing", rouge, run("rewards: {rouge: {weight: 1.0}, judge: {weight: 0, model: b}}", nil, nil), "reward", ""},
		{"how a judge is asked", run("rewards: {judge: {weight: 1.0, parallel: 8}}", nil, nil),
			run("rewards: {judge: {weight: 1.0, parallel: 1}}", nil, nil), "reward", ""},
		{"a program that was edited", program("a"), program("b"), "reward", "the content of judge.py"},
		{"one program", program("a"), program("a"), "reward", ""},
		{"scenes of another seed", run("data: {shapes: {seed: 1}}", nil, nil), run("data: {shapes: {seed: 2}}", nil, nil), "accuracy",
			"on the same questions"},
		{"accuracy is what it is", rouge, run("rewards: {rouge: {weight: 0.5}}", nil, nil), "accuracy", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, got := range []Refused{OtherRewards(tc.a, tc.b, "val", tc.metric), OtherRewards(tc.b, tc.a, "val", tc.metric)} {
				if (got.Cell == "") != (tc.want == "") || !strings.Contains(got.Why, tc.want) {
					t.Errorf("got %+v, want %q", got, tc.want)
				}
			}
		})
	}
}

// Runs of two seeds that read other data under the same names are no seeds of one arm; how a run is recorded and watched parts none.
func TestArmsReadTheSameData(t *testing.T) {
	run := func(seed int, fingerprint string) *record.Run {
		r := &record.Run{Tree: map[string]any{"seed": seed, "data": map[string]any{"beams": "rl.json"},
			"logging": map[string]any{"progress": seed > 0}, "checkpoint": map[string]any{"keep_states": seed}}}
		if fingerprint != "" {
			r.Summary = &record.Summary{Data: record.DataSummary{Fingerprint: fingerprint}}
		}
		return r
	}
	var got []string
	for _, a := range ArmsOf([]*record.Run{run(0, "x"), run(0, "y"), run(1, "y"), run(1, "x"), run(2, "")}) {
		got = append(got, strings.Join(a.Names, ""))
	}
	if want := "ADE BC"; strings.Join(got, " ") != want {
		t.Errorf("arms %v, want %s", got, want)
	}
	elsewhere := run(1, "x")
	elsewhere.Tree.(map[string]any)["lvlm"] = map[string]any{"url": "http://b"} // another model may be there
	if n := len(ArmsOf([]*record.Run{run(0, "x"), elsewhere})); n != 2 {
		t.Errorf("%d arms of two servers", n)
	}
}
