package phases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"fulcrum/internal/account"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/option"
	"fulcrum/internal/program"
	"fulcrum/internal/ranks"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

// ErrInterrupted is returned after a signal: the state is saved and a resume goes on from there.
var ErrInterrupted = errors.New("interrupted; the state is saved")

// Plan is the work of a run: its phases and its checks.
type Plan struct {
	Phases     []Phase
	Checkpoint CheckpointOptions
	Doctor     []doctor.Check // of the rows; empty: no check
}

// Result is the outcome of a finished run.
type Result struct {
	BestPhase string
	BestEpoch int
	BestFile  string
	Metric    string
	Mode      string // max or min
	Value     float64
	KL        float64
	Pruned    string // why the run ended before its last epoch (Env.Judge), or ""
	Choice    string // why the best is not the highest, in a sentence; "" where it is
	Warnings  []string
	Account   []account.Of // which queries each phase saw
	// Held-out (else validation) results of the initial and the best policy. InitialEval is nil after a
	// resume, which does not evaluate the start again.
	InitialEval, BestEval *Validation
}

// scheduler is one run in progress.
type scheduler struct {
	plan Plan
	env  *Env
	rule rule

	canScore bool // selections of validation queries have a reward

	pos  position
	ckpt string
	doc  *doctor.Doctor

	// saved: the state at the end of the last epoch is on disk or on its way there, so that a stop before the next step has
	// nothing to save.
	saved   bool
	writing chan error // gets the error of the state that a goroutine writes; nil: none does

	validated   validated
	initialEval *Validation // on the held-out queries, else on the validation queries
}

// Run trains env.Policy through the plan's phases, from the start or from a saved state. After every
// epoch it validates, records, saves a checkpoint and the state of an exact resume. It returns
// ErrInterrupted when ctx ends, once the state is saved.
func Run(ctx context.Context, plan Plan, env *Env, saved *Saved) (Result, error) {
	scorer, ok := env.Data.Val.(selector.Scorer)
	s := &scheduler{plan: plan, env: env, canScore: ok && scorer.CanScore(), ckpt: checkpointDir(env.Dir), doc: doctor.New(plan.Doctor),
		validated: validated{}}
	if s.first() {
		if err := atomicfile.MkdirAll(s.ckpt); err != nil {
			return Result{}, err
		}
	}
	var err error
	if saved, err = saved.share(env.Ranks); err != nil {
		return Result{}, err
	}
	if saved == nil {
		if err := s.start(); err != nil {
			return Result{}, err
		}
	} else {
		s.pos = saved.pos
		s.rule = newRule(plan.Checkpoint.Best, s.pos.Metric)
		if err := s.load(InitialCheckpoint, env.Initial); err != nil {
			return Result{}, err
		}
	}
	if err := s.trainAndSave(ctx, saved); err != nil {
		return Result{}, err
	}
	if err := s.look(); err != nil {
		return Result{}, err
	}
	r, err := s.finish()
	return r, cmp.Or(s.look(), err)
}

// look checks that the files which the run reads have not changed.
func (s *scheduler) look() (err error) {
	if s.env.Look != nil && s.first() {
		s.pos.Inputs, err = s.env.Look()
	}
	return err
}

// trainAndSave waits for the state that is written beside training, however training ends, a panic too. What could not be saved is said,
// and a run with such an error is not merely interrupted.
func (s *scheduler) trainAndSave(ctx context.Context, saved *Saved) (err error) {
	defer func() {
		unsaved := s.settle()
		switch {
		case err == nil || errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled):
			err = cmp.Or(unsaved, err)
		case unsaved != nil:
			err = fmt.Errorf("%w; %w", err, unsaved) // one message, one line
		}
	}()
	return s.train(ctx, saved)
}

// train is the loop: phases, epochs, batches.
func (s *scheduler) train(ctx context.Context, saved *Saved) error {
	for i := s.pos.PhaseIndex; i < len(s.plan.Phases) && s.pos.Pruned == ""; i++ {
		phase := s.plan.Phases[i]
		perEpoch := StepsPerEpoch(phase)
		if i > 0 && saved == nil {
			if _, err := s.restoreBest(s.plan.Phases[i-1].Info().Name); err != nil {
				return err
			}
		}
		if err := phase.Begin(s.env, perEpoch*phase.Info().Epochs); err != nil {
			return fmt.Errorf("%s: %w", phase.Info().Name, err)
		}
		s.doc.Begin(phase.Info().Name, s.expected(i))
		if saved != nil {
			if err := saved.restore(s.env, phase); err != nil {
				return err
			}
			if err := s.doc.Restore(saved.pos.Doctor); err != nil && s.first() { // the others have no checks
				return err
			}
			s.saved, saved = true, nil
		} else {
			s.pos = s.pos.enter(i, phase.Info())
		}
		prepared := 0 // epochs
		for epoch := s.pos.Epoch + 1; epoch <= phase.Info().Epochs && !s.pos.PhaseDone; epoch++ {
			for p, ok := phase.(Preparer); ok && prepared < epoch; prepared++ {
				err := p.Prepare(ctx, s.order(phase, prepared+1))
				if err != nil && ctx.Err() == nil { // a stop is seen below, where the state is saved
					return fmt.Errorf("%s: %w", phase.Info().Name, err)
				}
			}
			if err := s.epoch(ctx, phase, epoch); err != nil {
				return fmt.Errorf("%s epoch %d step %d: %w", phase.Info().Name, epoch, s.failedStep(err), err)
			}
			if err := s.validateAndSave(ctx, phase, epoch); err != nil { // only finite weights get here
				return fmt.Errorf("%s epoch %d: %w", phase.Info().Name, epoch, err)
			}
		}
		name, patience := phase.Info().Name, s.plan.Checkpoint.PatienceEpochs
		early := s.pos.Pruned != "" || patience != nil && s.pos.Best.stale(s.pos.History, name) >= *patience // it may have been
		if err := s.report(name, s.pos.Epoch, s.doc.End(early)); err != nil {
			return err
		}
		phase.End()
	}
	return nil
}

// epoch makes the optimizer steps of one epoch that are still to be made.
func (s *scheduler) epoch(ctx context.Context, phase Phase, epoch int) error {
	if s.pos.EpochSteps == 0 {
		s.pos.Sums = newSums()
		BeginEpoch(phase, epoch)
	}
	// the order depends only on seed, phase and epoch
	steps := epochSteps{phase.Info(), s.order(phase, epoch), epoch, s.pos.Step - s.pos.EpochSteps, StepsPerEpoch(phase)}
	for s.pos.EpochSteps < steps.count {
		stop, err := s.asked(ctx)
		if err != nil {
			return err
		}
		at := s.at(stop, steps)
		if err := s.maybeSave(stop, phase, at); err != nil {
			return err
		}
		begin := time.Now()
		m, err := s.step(ctx, phase, at) // candidates, rewards, advantages, loss, backward pass, clipping, AdamW
		if stopped(ctx, err) {           // while rewards were asked for: no weight has moved
			return cmp.Or(s.maybeSave(err, phase, at), err)
		}
		if err != nil {
			return s.explain(ctx, err, phase, at)
		}
		s.doc.Batch(epoch, at.Pass, at.Queries)
		m["step_seconds"] = time.Since(begin).Seconds()
		if err := s.made(phase.Info().Name, at, m); err != nil {
			return err
		}
	}
	return nil
}

// made counts and records a step.
func (s *scheduler) made(phase string, at At, m Metrics) error {
	epoch, of := at.Epoch, s.pos.Account
	if n := len(of); n > 0 && of[n-1].Phase == phase && at.Pass == 0 { // a state of an earlier version has none
		of[n-1].Add(at.Queries...)
	}
	s.pos.Step++
	s.pos.GlobalStep++
	s.pos.EpochSteps++
	s.pos.Sums.add(m)
	if err := s.env.Rec.Record("step", phase, epoch, s.pos.Step, s.pos.GlobalStep, m); err != nil {
		return err
	}
	if err := s.report(phase, epoch, s.doc.Step(epoch, s.pos.Step, m)); err != nil {
		return err
	}
	remark := s.env.remark
	if s.env.remark = ""; remark == "" {
		return nil
	}
	return s.event("note", phase, epoch, "eager_steps", remark)
}

type epochSteps struct {
	info         Info
	order        []int // its queries
	epoch, first int   // the number of its first step in the phase
	count        int
}

func (e epochSteps) at(i int) At {
	from := i / e.info.Passes * e.info.BatchSize
	return At{Epoch: e.epoch, Step: e.first + i, Pass: i % e.info.Passes, Queries: e.order[from:min(from+e.info.BatchSize, len(e.order))]}
}

// at is the step that comes now, with those that follow it for sure: of its epoch, before a stop and before a state is saved.
func (s *scheduler) at(stop error, steps epochSteps) At {
	now, from := steps.at(s.pos.EpochSteps), s.pos.EpochSteps+1
	for i := from; i < min(from+2, steps.count) && stop == nil && !s.due(s.pos.GlobalStep+i-s.pos.EpochSteps, steps.info.Passes); i++ {
		now.Next = append(now.Next, steps.at(i))
	}
	return now
}

// expected returns the limits of the rows of phase number i of the plan.
func (s *scheduler) expected(i int) doctor.Limits {
	phase, info := s.plan.Phases[i], s.plan.Phases[i].Info()
	var e doctor.Limits
	if p, ok := phase.(Expecter); ok {
		e = p.Expected()
	}
	if p, ok := s.env.Policy.(selector.TokenPolicy); ok {
		e.Text, e.HalfPrecision, e.Longest = true, p.HalfPrecision(), s.env.Data.Shots
	}
	if n := info.Source.Len(); info.queries() == n {
		e.Queries = n
	}
	e.Online, e.LengthKey, e.Shuffled, e.Placebo = info.Online, s.env.Data.ShotsKey, s.env.Data.Shuffle, s.env.Placebo
	e.StepsPerEpoch, e.Passes, e.StartsAtInit = StepsPerEpoch(phase), info.Passes, i == 0
	e.TotalSteps, e.Fresh = e.StepsPerEpoch*info.Epochs, s.env.Untrained
	return e
}

// failedStep is the number of the step that failed: of a doctor's stop, the step of its row.
func (s *scheduler) failedStep(err error) int {
	if _, ok := errors.AsType[*doctor.StopError](err); ok {
		return s.pos.Step
	}
	return s.pos.Step + 1
}

// report records what the doctor has found. A stop ends the run.
func (s *scheduler) report(phase string, epoch int, findings []doctor.Finding) error {
	for _, f := range findings {
		if err := s.env.Rec.Record("event", phase, epoch, s.pos.Step, s.pos.GlobalStep, f.Fields()); err != nil {
			return err
		}
	}
	if stop, ok := errors.AsType[*doctor.StopError](doctor.Judge(findings)); ok {
		return fmt.Errorf("%w; as a warning it lets a run go on, this one too: %s", stop,
			program.Command("resume", "FOLDER", "checks.severity."+stop.Finding.Check+"=warning"))
	}
	return nil
}

// step makes one optimizer step inside a memory scope; an operation that fails becomes an error.
func (s *scheduler) step(ctx context.Context, phase Phase, at At) (m Metrics, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	measured, err := phase.Step(ctx, at)
	if cut := tensorfile.Cut(); cut != nil { // the step has read zeros
		return nil, cut
	}
	if err != nil {
		return nil, err
	}
	return measured.Row(), nil
}

func (s *scheduler) order(phase Phase, epoch int) []int {
	info := phase.Info()
	n := info.queries()
	if s.env.Data.Shuffle {
		return rng.New(s.env.Seed, "shuffle "+info.Name, epoch).Perm(info.Source.Len())[:n]
	}
	return stat.Indices(n)
}

// StepsPerEpoch is the number of optimizer steps in an epoch of phase.
func StepsPerEpoch(phase Phase) int {
	info := phase.Info()
	return (info.queries() + info.BatchSize - 1) / info.BatchSize * info.Passes
}

func (i Info) queries() int { return min(i.Source.Len(), option.Or(i.EpochQueries, math.MaxInt)) }

// enter is the position at the start of a phase.
func (pos position) enter(index int, of Info) position {
	pos.PhaseIndex, pos.Phase, pos.PhaseDone, pos.PhaseScores = index, of.Name, false, nil
	pos.Account = append(pos.Account, account.Of{Phase: of.Name, Queries: of.Source.Len(), PerEpoch: of.queries()})
	pos.Epoch, pos.EpochSteps, pos.Step = 0, 0, 0
	return pos
}

// maybeSave saves a state in mid-epoch when it is due, or because the run is asked to stop. Before the
// epoch's first step that is the end of the epoch before (or the start), where that is not saved already;
// BeginEpoch comes again after the resume, with the same weights. Between the passes over a batch, and while the next step is under way,
// nothing can be saved.
func (s *scheduler) maybeSave(stop error, phase Phase, at At) error {
	if at.Pass > 0 || s.env.inFlight {
		return nil
	}
	i := s.pos.EpochSteps
	if stop == nil && !s.due(s.pos.GlobalStep, phase.Info().Passes) {
		return nil
	}
	if i > 0 || !s.saved {
		if err := cmp.Or(s.look(), finite(s.env)); err != nil {
			return err
		}
		write, err := s.state(fmt.Sprintf("%s_epoch%d_step%d%s", phase.Info().Name, at.Epoch, i, stateSuffix), phase, true)
		if err == nil && s.first() {
			err = write()
		}
		if err != nil {
			return err
		}
	}
	if _, ok := errors.AsType[*ranks.StoppedError](stop); ok {
		return fmt.Errorf("%w: %w", ErrInterrupted, stop)
	}
	if stop != nil {
		return ErrInterrupted
	}
	return nil
}

// stopped reports whether err is the end of ctx, or another process's, as the interrupted work reports it.
func stopped(ctx context.Context, err error) bool {
	if _, ok := errors.AsType[*ranks.StoppedError](err); ok {
		return true
	}
	return ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, context.Canceled))
}

// asked returns why the run is asked to stop, which all its processes learn at the same step; nil: it is not.
func (s *scheduler) asked(ctx context.Context) (stop, err error) {
	_, err = s.env.Ranks.Exchange("the start of a step", nil, ctx.Err())
	if errors.Is(err, context.Canceled) {
		return err, nil
	}
	return nil, err
}

// first reports whether this process is the one that writes.
func (s *scheduler) first() bool { return s.env.Ranks.First() }

// load loads a checkpoint's weights, which rank 0 reads.
func (s *scheduler) load(file string, p selector.Policy) (err error) {
	if s.first() {
		err = loadWeights(filepath.Join(s.ckpt, file), p)
	}
	if s.env.Ranks == nil || err != nil {
		return err
	}
	values, err := ranks.Share(s.env.Ranks, "the weights of a checkpoint", p.Params().Values(), nil)
	if err == nil && !s.first() {
		p.Params().SetValues(values)
	}
	return err
}

// due reports whether a state is saved in mid-epoch after so many steps of the run, the last of which were passes over one batch: within
// them every_steps may have been reached.
func (s *scheduler) due(steps, passes int) bool {
	every := s.plan.Checkpoint.EverySteps
	return every != nil && steps >= passes && steps%*every < passes
}

// event records a warning, or a note: what a reader should know.
func (s *scheduler) event(severity, phase string, epoch int, name, message string) error {
	return s.env.Rec.Record("event", phase, epoch, s.pos.Step, s.pos.GlobalStep,
		Metrics{"event": name, "severity": severity, "message": message})
}
