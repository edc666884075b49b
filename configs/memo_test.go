package configs

import (
	"testing"
)

// Jobs of a sweep are checked only where they differ; that must not show in what comes out.
func TestJobsEqualSingleComposition(t *testing.T) {
	files := `--- config
defaults: [{g: a}, _self_]
task: train
name: ${task}-${grpo.kl.beta}
extra: {deep: [1, {k: '${seed}'}], plain: {x: 1}}
grpo:
  epochs: 2
  weights: {vqa: '${seed}', other: 1}
  top_k: 3
--- g/a
# @package grpo
kl: {beta: 0.1, target_max: 0.5}
--- g/b
# @package grpo
kl: {beta: 1}
`
	req := request(files)
	req.Schema = appSchema(t)
	req.Multirun = true
	c, err := NewComposer(req)
	if err != nil {
		t.Fatal(err)
	}
	master, err := c.Compose()
	if err != nil {
		t.Fatal(err)
	}
	jobs := [][]string{
		{"seed=1"}, {"seed=2"}, {"seed=3", "g=b"}, {"seed=4", "g=b"},
		{"grpo.kl.target_min=0.7"},           // Validate refuses it
		{"grpo.kl.target_min=0.3", "seed=5"}, // and this not
		{"grpo.lr=7"}, {"grpo.weights={vqa:2}"}, {"grpo.epochs=x"}, {"grpo.epochs=0"}, {"seed=${grpo.epochs}"},
		{"name=???"}, {"grpo.top_k=null"}, {"extra={deep:1}"}, {"extra.plain.x='${seed}'"}, {"g=c"}, {"seed=9"},
	}
	for round := 0; round < 2; round++ {
		for i, overrides := range jobs {
			single := request(files, overrides...)
			single.Schema = req.Schema
			want, got := "", ""
			if m, err := Compose(single); err != nil {
				want = err.Error()
			} else if want, err = m.YAML("job", true, ""); err != nil {
				want = err.Error()
			} else if n, err := m.Resolved(); err == nil {
				want += n.pyRepr()
			}
			job, err := c.Job(master, i, overrides)
			if err != nil {
				got = err.Error()
			} else if got, err = job.YAML("job", true, ""); err != nil {
				got = err.Error()
			} else if n, err := job.Resolved(); err == nil {
				got += n.pyRepr()
				var o appOptions
				if err := job.Decode(&o); err == nil && o.GRPO.Weights["vqa"] != float64(o.Seed) && overrides[0] != "grpo.weights={vqa:2}" {
					t.Errorf("%v: decoded weights %v, seed %d", overrides, o.GRPO.Weights, o.Seed)
				}
			}
			if got != want {
				t.Errorf("round %d, %v\n got %s\nwant %s", round, overrides, got, want)
			}
		}
	}
}
