package tasks

import (
	"context"
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/reports/record"
	"fulcrum/selector"
)

// toyOptions are the section of a kind of phase.
type toyOptions struct {
	Epochs int     `koanf:"epochs" help:"passes over the groups" range:"[0,inf)"`
	Rate   float64 `koanf:"rate" help:"what the toy learns at" range:"(0,1)"`
}

func (o *toyOptions) Validate() error {
	return option.Want(o.Rate < 0.5 || o.Epochs < 2, "rate", "want less than 0.5 with two epochs, got %g", o.Rate)
}

func (o *toyOptions) Build(name string, c *job.Config, d job.Sources) (phases.Phase, error) {
	src, err := d.Beams(name)
	return &toyPhase{toyOptions: *o, name: name, config: c, src: src}, err
}

func (o *toyOptions) Traits(*job.Config) job.Traits {
	return job.Traits{Epochs: o.Epochs, Learns: job.FromRewards}
}

func (o *toyOptions) Shrink(int) {}

// toyPhase raises Σ reward·log π of the recorded candidates: the shortest phase that trains.
type toyPhase struct {
	toyOptions
	name   string
	config *job.Config
	src    selector.Source
	env    *phases.Env
	learn  *phases.Learner
	steps  *phases.Steps[*selector.Batch, *toyInputs]
}

func (p *toyPhase) Info() phases.Info {
	return phases.Info{Name: p.name, Epochs: p.Epochs, Source: p.src, BatchSize: p.config.Data.BatchSize, Passes: 1}
}

func (p *toyPhase) Begin(env *phases.Env, totalSteps int) (err error) {
	p.env = env
	p.learn, err = phases.NewLearner(env, p.name, p.config.Optim, p.Rate, p.config.LRSchedule, totalSteps, nil)
	p.steps = phases.NewSteps[*selector.Batch, *toyInputs](p.learn, p)
	return err
}

func (p *toyPhase) Step(ctx context.Context, at phases.At) (phases.Measured, error) {
	of, err := p.steps.Make(ctx, at)
	if err != nil {
		return nil, err
	}
	row := phases.Row(of.OptimizerMetrics)
	row["items"] = of.Batch.NumValid()
	return row, nil
}

// Collect takes the recorded candidates.
func (p *toyPhase) Collect(_ context.Context, at phases.At) (*selector.Batch, error) {
	return p.src.Recorded(at.Queries), nil
}

// toyInputs is what the loss reads.
type toyInputs struct {
	policy func(selector.ForwardOptions) selector.Output
	reward torchx.Tensor // [B, G]
}

// Inputs sends the rewards to the device.
func (p *toyPhase) Inputs(b *selector.Batch, up *phases.Inputs) []*toyInputs {
	in := &toyInputs{policy: up.Forward(p.env.Policy, b, selector.ForwardOptions{})}
	torchx.Put(&up.Upload, &in.reward, objective.Rounded(b.Rewards), b.B(), b.G)
	return []*toyInputs{in}
}

// Loss is -Σ reward·log π.
func (p *toyPhase) Loss(in *toyInputs) (torchx.Tensor, []torchx.Tensor) {
	logp := objective.Sequence(in.policy(selector.ForwardOptions{}).LogP) // [B, G]
	return torchx.Neg(torchx.Sum(torchx.Mul(logp, in.reward))), nil
}

func (p *toyPhase) State() phases.PhaseState { return p.learn.State() }

func (p *toyPhase) Restore(s phases.PhaseState) error { return p.learn.Restore(s) }

func (p *toyPhase) End() { p.learn.Free() }

// toyConfig composes a configuration whose kinds of phases are ours and the toy.
func toyConfig(overrides ...string) (*job.Config, *configs.Schema, error) {
	toy := func() *job.Config {
		c := job.DefaultConfig(Entries())
		c.Sections["toy"] = configs.Section{Kind: "toy", Options: &toyOptions{Epochs: 1, Rate: 0.01}, Help: "a phase that a test adds"}
		return c
	}
	schema, err := SchemaOf(toy())
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
