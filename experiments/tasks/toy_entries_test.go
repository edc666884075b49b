package tasks

import (
	"context"
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/option"
	"fulcrum/reports/record"
	"fulcrum/selector/pointer"
)

// countOptions are the section of a task that a test adds.
type countOptions struct {
	To int `koanf:"to" help:"counts so far" range:"[1,9]"`
}

func (o countOptions) Validate() error {
	return option.Want(o.To != 4, "to", "want another number than 4")
}

// countTask is task=count.
func countTask(counted *int) job.Task {
	return job.Task{Options: &countOptions{To: 3}, Sections: []string{"init"}, On: func(*job.Config) string { return "on fingers" },
		Run: func(_ context.Context, j *job.Job) error {
			*counted = job.Own[countOptions](j.Config, "count").To
			return nil
		},
		Validate: func(c *job.Config) error {
			return option.Want(c.Init.Checkpoint == nil, "init.checkpoint", "task=count begins at 1")
		}}
}

// narrowOptions are the section of a policy that a test adds.
type narrowOptions struct {
	Width int `koanf:"width" help:"of the selector's hidden layers" range:"[8,64]"`
}

// narrowPolicy is policy=narrow: a selector with one number to set.
func narrowPolicy() job.Policy {
	return job.Policy{Section: "narrow", Help: "a narrow selector", Options: &narrowOptions{Width: 16},
		Validate: func(c *job.Config) error { return option.Want(c.Seed != 13, "seed", "policy=narrow fears 13") },
		New: func(ctx context.Context, j *job.Job) (job.Workload, error) {
			job.Own[pointer.Options](j.Config, "selector").HiddenDim = job.Own[narrowOptions](j.Config, "narrow").Width
			p, err := workload.Policies().Get("pointer")
			if err != nil {
				return nil, err
			}
			return p.New(ctx, j)
		}}
}

// A task is one file and one line, a policy too: here the lines are in toys, elsewhere in Tasks and in workload.Policies. Each brings its
// section with help, ranges and Validate, and says which keys act.
func TestToyTaskAndPolicy(t *testing.T) {
	counted := 0
	toys := Entries()
	toys.Tasks.Add("count", countTask(&counted))
	toys.Policies.Add("narrow", narrowPolicy())
	schema, err := SchemaOf(job.DefaultConfig(toys))
	if err != nil {
		t.Fatal(err)
	}
	compose := func(overrides string) (*configs.Composed, error) {
		c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: strings.Fields(overrides),
			Now: time.Now(), AppName: "run"})
		if err == nil {
			err = c.RefuseIdle(c.Idle(c.Typed(c.TaskOverrides())))
		}
		return c, err
	}
	for _, tc := range []struct{ overrides, want string }{
		{"task=count count.to=5", ""},
		{"task=count count.to=10", "count.to=10: want an integer in [1, 9]"},
		{"task=count count.to=4", "want another number than 4"},
		{"task=count count.too=4", "did you mean count.to?"},
		{"task=count init.checkpoint=/c", "task=count begins at 1"},
		{"task=count sft.lr=1", "sft.lr belongs to"},
		{"task=cuont", "did you mean count?"},
		{"count.to=5", "count.to belongs to task=count"},
		{"policy=narrow narrow.width=32", ""},
		{"policy=narrow narrow.width=4", "narrow.width=4: want an integer in [8, 64]"},
		{"policy=narrow seed=13", "policy=narrow fears 13"},
		{"policy=narrow selector.dropout=0.5", "selector.dropout belongs to policy=pointer"},
		{"narrow.width=32", "narrow.width belongs to policy=narrow"},
	} {
		if _, err := compose(tc.overrides); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.overrides, err, tc.want)
		}
	}
	if schema.Help("narrow") != "a narrow selector (policy=narrow)" || schema.Help("count.to") != "counts so far" {
		t.Errorf("help of the sections: %q, %q", schema.Help("narrow"), schema.Help("count.to"))
	}
	run := func(overrides string) *job.Job {
		composed, err := compose(overrides)
		if err != nil {
			t.Fatal(err)
		}
		c, err := job.Decode(composed)
		if err != nil {
			t.Fatal(err)
		}
		j := &job.Job{Config: c, Dir: t.TempDir()}
		if j.Log, err = record.OpenLog(j.Dir, record.LogOptions{LoggingOptions: c.Logging}); err != nil {
			t.Fatal(err)
		}
		defer j.Log.Close()
		if err := c.Does().Run(context.Background(), j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	if run("task=count count.to=5"); counted != 5 {
		t.Errorf("counted to %d, want 5", counted)
	}
	j := run("exp=okvqa_v3 policy=narrow narrow.width=8 schedule=[rce] rce.epochs=1 threads=1 checks.off=[preflight] " +
		"data.shapes.train_queries=16 data.shapes.reader_questions=40 data.shapes.val_queries=8 data.shapes.dev_queries=8")
	if rows, err := record.ReadRun(j.Dir); err != nil || len(rows.Epochs) != 1 {
		t.Errorf("got epochs %v (%v), want one of rce", rows.Epochs, err)
	}
}
