package experiments_test

import (
	"context"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// This file is a whole kind of phase. It stands in phases/toy where it is not a test's, and its line in job.PhaseKinds.

// toyKind is the kind of phase toy.
func toyKind() phases.Kind {
	return phases.Kind{Name: "toy", Help: "a phase that a test adds",
		New: func() phases.Options { return &toyOptions{Epochs: 1, LR: 0.01} }}
}

// toyOptions are the section of a kind of phase.
type toyOptions struct {
	Epochs int     `koanf:"epochs" help:"passes over the groups" range:"[0,inf)"`
	LR     float64 `koanf:"lr" help:"what the toy learns at" range:"(0,1)"`
}

func (o *toyOptions) Validate() error {
	return option.Want(o.LR < 0.5 || o.Epochs < 2, "lr", "want less than 0.5 with two epochs, got %g", o.LR)
}

func (o *toyOptions) Build(name string, s phases.Setup, d phases.Sources) (phases.Phase, error) {
	src, err := d.Beams(name)
	return &toyPhase{toyOptions: *o, name: name, setup: s, src: src}, err
}

func (o *toyOptions) Traits(phases.Setup) phases.Traits {
	return phases.Traits{Epochs: o.Epochs, Learns: phases.FromRewards}
}

func (o *toyOptions) Shrink(int) {}

// toyPhase raises Σ reward·log π of the recorded candidates: the shortest phase that trains.
type toyPhase struct {
	toyOptions
	name  string
	setup phases.Setup
	src   selector.Source
	env   *phases.Env
	learn *phases.Learner
	steps *phases.Steps[*selector.Batch, *toyInputs]
}

func (p *toyPhase) Info() phases.Info {
	return phases.Info{Name: p.name, Epochs: p.Epochs, Source: p.src, BatchSize: p.setup.BatchSize, Passes: 1}
}

func (p *toyPhase) Begin(env *phases.Env, totalSteps int) (err error) {
	p.env = env
	p.learn, err = phases.NewLearner(env, p.name, p.setup.Optim, p.LR, p.setup.LRSchedule, totalSteps, nil)
	p.steps = phases.NewSteps[*selector.Batch, *toyInputs](p.learn, p, nil)
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

// Size is the number of queries.
func (p *toyPhase) Size(b *selector.Batch) int { return b.B() }

// Inputs sends the rewards of a part of the batch to the device.
func (p *toyPhase) Inputs(b *selector.Batch, of phases.Span, up *phases.Inputs) (*toyInputs, bool) {
	b = b.Part(of.From, of.To)
	in := &toyInputs{policy: up.Forward(p.env.Policy, b, selector.ForwardOptions{})}
	torchx.Put(&up.Upload, &in.reward, objective.Rounded(b.Rewards), b.B(), b.G)
	return in, true
}

// Loss is -Σ reward·log π.
func (p *toyPhase) Loss(in *toyInputs) (torchx.Tensor, []torchx.Tensor) {
	logp := objective.Sequence(in.policy(selector.ForwardOptions{}).LogP) // [B, G]
	return torchx.Neg(torchx.Sum(torchx.Mul(logp, in.reward))), nil
}

func (p *toyPhase) State() phases.PhaseState { return p.learn.State() }

func (p *toyPhase) Restore(s phases.PhaseState) error { return p.learn.Restore(s) }

func (p *toyPhase) End() { p.learn.Free() }
