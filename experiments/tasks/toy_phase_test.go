package tasks

import (
	"context"
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/internal/option"
	"fulcrum/phases"
	"fulcrum/phases/rce"
	"fulcrum/reports/record"
)

// toyOptions are what a kind of phase brings: this one trains as rce does.
type toyOptions struct {
	Epochs int     `koanf:"epochs" help:"passes over the groups" range:"[0,inf)"`
	Rate   float64 `koanf:"rate" help:"what the toy learns at" range:"(0,1)"`
}

func (o *toyOptions) Validate() error {
	return option.Want(o.Rate < 0.5 || o.Epochs < 2, "rate", "want less than 0.5 with two epochs, got %g", o.Rate)
}

func (o *toyOptions) Build(name string, c *job.Config, d job.Sources) (phases.Phase, error) {
	src, err := d.Beams(name)
	opt := rce.DefaultOptions()
	opt.Epochs, opt.LR = o.Epochs, o.Rate
	return toyPhase{rce.New(opt, c.Optim, c.LRSchedule, src, c.Data.BatchSize, 0), name}, err
}

func (o *toyOptions) Traits(*job.Config) job.Traits {
	return job.Traits{Epochs: o.Epochs, Learns: job.FromRewards}
}

func (o *toyOptions) Shrink(int) {}

type toyPhase struct {
	*rce.Phase
	name string
}

func (p toyPhase) Info() phases.Info {
	info := p.Phase.Info()
	info.Name = p.name
	return info
}

// toyConfig composes a configuration whose kinds of phases are ours and the toy.
func toyConfig(overrides ...string) (*job.Config, *configs.Schema, error) {
	toy := func() *job.Config {
		c := job.DefaultConfig()
		c.Sections["toy"] = configs.Section{Kind: "toy", Options: &toyOptions{Epochs: 1, Rate: 0.01}, Help: "a phase that a test adds"}
		return c
	}
	schema, err := configs.SchemaOf(toy())
	if err != nil {
		return nil, nil, err
	}
	overrides = append([]string{"exp=okvqa_v3", "threads=1", "seed=3", "data.batch_size=16", "selector.hidden_dim=32",
		"data.shapes.train_queries=48",
		"data.shapes.reader_questions=30", "data.shapes.val_queries=16", "data.shapes.dev_queries=16", "schedule=[toy]"}, overrides...)
	composed, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: overrides,
		Now: time.Now(), AppName: "run"})
	if err != nil {
		return nil, schema, err
	}
	c := toy()
	return c, schema, composed.Decode(c)
}

// A kind of phase is one file and one line: here the line is in toyConfig, elsewhere in job.PhaseKinds. It is documented,
// validated, looked at by the preflight and the audit, and trains.
func TestToyPhase(t *testing.T) {
	for _, tc := range []struct{ name, override, want string }{
		{"range", "toy.rate=2", "toy.rate=2: want a number in (0, 1)"},
		{"Validate", "toy.rate=0.7 toy.epochs=2", "want less than 0.5 with two epochs, got 0.7"},
		{"unknown key", "toy.rat=0.1", "did you mean toy.rate?"},
		{"unknown phase", "schedule=[toi]", "toy"},
		{"no epochs", "toy.epochs=0", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := toyConfig(strings.Fields(tc.override)...); (err == nil) != (tc.want == "") || err != nil &&
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %s", tc.override, err, tc.want)
			}
		})
	}
	c, schema, err := toyConfig("toy.epochs=2")
	if err != nil {
		t.Fatal(err)
	}
	if keys := strings.Join(schema.Keys(), " "); !strings.Contains(keys, "toy.rate") {
		t.Errorf("the table of keys lacks toy.rate: %s", keys)
	}
	j := &job.Job{Config: c, Dir: t.TempDir()}
	if j.Log, err = record.OpenLog(j.Dir, record.LogOptions{LoggingOptions: c.Logging}); err != nil {
		t.Fatal(err)
	}
	defer j.Log.Close()
	if err := train(context.Background(), j); err != nil {
		t.Fatal(err)
	}
	rows, err := record.ReadRun(j.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows.Epochs) != 2 || rows.Epochs[1].Phase != "toy" {
		t.Errorf("got epochs %v, want two of toy", rows.Epochs)
	}
	if c.Learns(job.FromGroups) || !c.Learns(job.FromRewards) {
		t.Error("the audit does not know what the toy learns from")
	}
}
