package phases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

// ErrInterrupted is returned after a signal: the state is saved and a resume goes on from there.
var ErrInterrupted = errors.New("interrupted; the state is saved")

// Plan is what a run does.
type Plan struct {
	Phases     []Phase
	Checkpoint CheckpointOptions
	Doctor     doctor.Options
}

// Result is what a finished run reports.
type Result struct {
	BestPhase string
	BestEpoch int
	BestFile  string
	Metric    string
	Mode      string // max or min
	Value     float64
	KL        float64
	Pruned    string // why the run ended before its last epoch (Env.Judge), or ""
	Warnings  []string
	// Held-out (else validation) results of the initial and the best policy. InitialEval is nil after a
	// resume, which does not evaluate the start again.
	InitialEval, BestEval *Validation
}

// scheduler is one run in progress.
type scheduler struct {
	plan Plan
	env  *Env
	rule rule
	pos  position
	ckpt string
	doc  *doctor.Doctor

	// saved: the state at the end of the last epoch is on disk, so that a stop before the next step has
	// nothing to save.
	saved bool

	initialEval *Validation // on the held-out queries, else on the validation queries
}

// Run trains env.Policy through the plan's phases, from the start or from a saved state. After every
// epoch it validates, records, saves a checkpoint and the state of an exact resume. It returns
// ErrInterrupted when ctx ends, once the state is saved.
func Run(ctx context.Context, plan Plan, env *Env, saved *Saved) (Result, error) {
	scorer, ok := env.Data.Val.(selector.Scorer)
	s := &scheduler{plan: plan, env: env, rule: newRule(plan.Checkpoint.Best, ok && scorer.CanScore()), ckpt: checkpointDir(env.Dir), doc: doctor.New(plan.Doctor)}
	if err := atomicfile.MkdirAll(s.ckpt); err != nil {
		return Result{}, err
	}
	if saved == nil {
		if err := s.start(); err != nil {
			return Result{}, err
		}
	} else {
		s.pos = saved.pos
		if err := loadWeights(filepath.Join(s.ckpt, InitialCheckpoint), env.Initial); err != nil {
			return Result{}, err
		}
	}
	if err := s.train(ctx, saved); err != nil {
		return Result{}, err
	}
	return s.finish()
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
			if err := saved.restore(s.env.Dir, s.env, phase); err != nil {
				return err
			}
			if err := s.doc.Restore(saved.pos.Doctor); err != nil {
				return err
			}
			s.saved, saved = true, nil
		} else {
			s.pos = s.pos.enter(i, phase.Info().Name)
		}
		if p, ok := phase.(Preparer); ok && !s.pos.PhaseDone {
			if err := p.Prepare(ctx); err != nil && ctx.Err() == nil { // a stop is seen below, where the state is saved
				return fmt.Errorf("%s: %w", phase.Info().Name, err)
			}
		}
		for epoch := s.pos.Epoch + 1; epoch <= phase.Info().Epochs && !s.pos.PhaseDone; epoch++ {
			if err := s.epoch(ctx, phase, epoch, perEpoch); err != nil {
				return fmt.Errorf("%s epoch %d step %d: %w", phase.Info().Name, epoch, s.failedStep(err), err)
			}
			if err := s.validateAndSave(phase, epoch); err != nil { // only finite weights get here
				return fmt.Errorf("%s epoch %d: %w", phase.Info().Name, epoch, err)
			}
		}
		phase.End()
	}
	return nil
}

// epoch makes the optimizer steps of one epoch that are still to be made.
func (s *scheduler) epoch(ctx context.Context, phase Phase, epoch, perEpoch int) error {
	if s.pos.EpochSteps == 0 {
		s.pos.Sums = newSums()
		BeginEpoch(phase, epoch)
	}
	info := phase.Info()
	order := s.order(phase, epoch) // depends only on seed, phase and epoch
	for i := s.pos.EpochSteps; i < perEpoch; i++ {
		at, pass := i/info.Passes*info.BatchSize, i%info.Passes
		if pass == 0 {
			if err := s.maybeSave(ctx, phase, epoch, i); err != nil {
				return err
			}
		}
		begin := time.Now()
		queries := order[at:min(at+info.BatchSize, len(order))]
		s.doc.Batch(epoch, pass, queries)
		m, err := s.step(ctx, phase, epoch, pass, queries)
		if err != nil {
			return s.explain(ctx, err, phase, epoch, pass, queries)
		}
		m["step_seconds"] = time.Since(begin).Seconds()
		s.pos.Step++
		s.pos.GlobalStep++
		s.pos.EpochSteps++
		s.pos.Sums.add(m)
		if err := s.env.Rec.Record("step", phase.Info().Name, epoch, s.pos.Step, s.pos.GlobalStep, m); err != nil {
			return err
		}
		if err := s.report(phase.Info().Name, epoch, s.doc.Step(epoch, s.pos.Step, m)); err != nil {
			return err
		}
	}
	return nil
}

// expected is what the rows of phase number i of the plan must look like.
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
	e.Online, e.LengthKey, e.Shuffled = info.Online, s.env.Data.ShotsKey, s.env.Data.Shuffle
	e.StepsPerEpoch, e.Passes, e.StartsAtInit = StepsPerEpoch(phase), info.Passes, i == 0
	e.TotalSteps = e.StepsPerEpoch * info.Epochs
	return e
}

// failedStep is the number of the step that an error is about: of a stop, that of the row it was found in.
func (s *scheduler) failedStep(err error) int {
	var stop *doctor.StopError
	if errors.As(err, &stop) {
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
	var stop *doctor.StopError
	if err := doctor.Judge(findings); errors.As(err, &stop) {
		return fmt.Errorf("%w; with doctor.%s.severity=warning the run goes on (of this one, in .hydra/config.yaml; then run resume)", stop, stop.Finding.Check)
	}
	return nil
}

// Step makes one optimizer step inside a memory scope; an operation that fails becomes an error.
func (s *scheduler) step(ctx context.Context, phase Phase, epoch, pass int, queries []int) (m Metrics, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	measured, err := phase.Step(ctx, epoch, s.pos.Step, pass, queries)
	if err != nil {
		return nil, err
	}
	return measured.Row(), nil
}

// order is the sequence of queries of an epoch.
func (s *scheduler) order(phase Phase, epoch int) []int {
	info := phase.Info()
	n := info.queries()
	if s.env.Data.Shuffle {
		return rng.New(s.env.Seed, "shuffle "+info.Name, epoch).Perm(info.Source.Len())[:n]
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// StepsPerEpoch is how many optimizer steps an epoch of phase has.
func StepsPerEpoch(phase Phase) int {
	info := phase.Info()
	return (info.queries() + info.BatchSize - 1) / info.BatchSize * info.Passes
}

// queries is how many queries an epoch takes.
func (i Info) queries() int {
	if i.EpochQueries != nil {
		return min(i.Source.Len(), *i.EpochQueries)
	}
	return i.Source.Len()
}

// enter is the position at the start of a phase.
func (pos position) enter(index int, name string) position {
	pos.PhaseIndex, pos.Phase, pos.PhaseDone = index, name, false
	pos.Epoch, pos.EpochSteps, pos.Step = 0, 0, 0
	return pos
}

// maybeSave saves a state in mid-epoch when it is due, or because the run is asked to stop. Before the
// epoch's first step that is the end of the epoch before (or the start), where that is not saved already;
// BeginEpoch comes again after the resume, with the same weights.
func (s *scheduler) maybeSave(ctx context.Context, phase Phase, epoch, i int) error {
	stop := ctx.Err() != nil
	every := s.plan.Checkpoint.EverySteps
	if !stop && (every == nil || s.pos.GlobalStep == 0 || s.pos.GlobalStep%*every != 0) {
		return nil
	}
	if i > 0 || !s.saved {
		if err := finite(s.env); err != nil {
			return err
		}
		var err error
		s.pos.Doctor = s.doc.State()
		if s.pos.Rows, s.pos.Evals, s.pos.Completions, err = s.env.Rec.Mark(); err != nil {
			return err
		}
		name := fmt.Sprintf("%s_epoch%d_step%d%s", phase.Info().Name, epoch, i, stateSuffix)
		if err := s.pos.save(s.ckpt, name, s.env, phase, true); err != nil {
			return err
		}
		if err := s.dropMidEpoch(name); err != nil {
			return err
		}
	}
	if stop {
		return ErrInterrupted
	}
	return nil
}

// dropMidEpoch removes the mid-epoch states that a newer state replaces.
func (s *scheduler) dropMidEpoch(keep string) error {
	old, err := filepath.Glob(filepath.Join(s.ckpt, "*_step*"+stateSuffix))
	if err != nil {
		return err
	}
	for _, path := range old {
		if filepath.Base(path) != keep {
			if err := atomicfile.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// start validates and saves the initial policy: epoch 0, which competes for best.
func (s *scheduler) start() error {
	v, err := Validate(s.env.Initial, s.env.Initial, s.env.Data.Val, s.env.Data)
	if err != nil {
		return fmt.Errorf("validating the initial policy: %w", err)
	}
	m := v.Metrics("val_")
	value, err := s.rule.value(m)
	if err != nil {
		return err
	}
	s.doc.Start(v.Metrics(""), standardError(v.Rewards))
	file := InitialCheckpoint
	if err := saveWeights(filepath.Join(s.ckpt, file), s.env.Initial, "init", 0, s.env.ConfigHash, m); err != nil {
		return err
	}
	s.pos.History = []bestCandidate{{Phase: "init", File: file, Value: value, KL: v.KL, Loss: v.Loss, Saved: true}}
	s.pos.Best = s.rule.choose(s.pos.History)
	if err := s.recordEval("val", "init", "init", 0, s.env.Data.Val, v, initReference); err != nil {
		return err
	}
	held, err := s.evaluateHeldOut(s.env.Initial, s.env.Initial, "init", "init", 0, initReference)
	s.initialEval = cmp.Or(held, &v)
	return err
}

// validateAndSave ends an epoch: validation, the epoch's row, the checkpoint, the state of a resume.
func (s *scheduler) validateAndSave(phase Phase, epoch int) error {
	env := s.env
	if err := finite(env); err != nil {
		return err
	}
	m := s.pos.Sums.means()
	extra := EndEpoch(phase)
	reference, referenceName := ReferenceOf(phase, env)
	v, err := Validate(env.Policy, reference, env.Data.Val, env.Data)
	if err != nil {
		return fmt.Errorf("validation: %w", err)
	}
	for _, more := range []Metrics{extra, v.Metrics("val_")} {
		for name, x := range more {
			m[name] = x
		}
	}
	value, err := s.rule.value(m)
	if err != nil {
		return err
	}
	file := checkpointName(phase.Info().Name, epoch)
	s.pos.Epoch, s.pos.EpochSteps, s.pos.Sums = epoch, 0, sums{}
	s.pos.History = append(s.pos.History, bestCandidate{Phase: phase.Info().Name, Epoch: epoch, File: file, Value: value, KL: v.KL, Loss: v.Loss})
	s.pos.Best = s.rule.choose(s.pos.History)
	patience := s.plan.Checkpoint.PatienceEpochs
	if env.Judge != nil {
		if s.pos.Pruned, err = env.Judge(len(s.pos.History)-1, m, s.rule.metric, s.rule.sign < 0); err != nil {
			return err
		}
	}
	stopped := patience != nil && epoch < phase.Info().Epochs && s.pos.Best.stale(s.pos.History, phase.Info().Name) >= *patience
	s.pos.PhaseDone = stopped || epoch == phase.Info().Epochs || s.pos.Pruned != ""
	saved := s.pos.PhaseDone || epoch%s.plan.Checkpoint.EveryEpochs == 0 || s.pos.Best.Candidate.File == file
	s.pos.History[len(s.pos.History)-1].Saved = saved
	if saved {
		if err := saveWeights(filepath.Join(s.ckpt, file), env.Policy, phase.Info().Name, epoch, env.ConfigHash, v.Metrics("val_")); err != nil {
			return err
		}
		if env.Export != nil {
			if err := env.Export(filepath.Join(s.ckpt, file), phase.Info().Name, epoch, m); err != nil {
				return err
			}
		}
		m["checkpoint"] = filepath.Join("checkpoints", file)
	}
	if err := env.Rec.Record("epoch", phase.Info().Name, epoch, s.pos.Step, s.pos.GlobalStep, m); err != nil {
		return err
	}
	if s.pos.Pruned != "" {
		if err := env.Rec.Record("event", phase.Info().Name, epoch, s.pos.Step, s.pos.GlobalStep, Metrics{"event": "pruned", "severity": "note", "message": s.pos.Pruned}); err != nil {
			return err
		}
	} else if stopped {
		if err := s.event(phase.Info().Name, epoch, "early_stop", fmt.Sprintf("%s ends after epoch %d: %s has not improved for %d epochs (checkpoint.patience_epochs)", phase.Info().Name, epoch, s.rule.metric, *patience)); err != nil {
			return err
		}
	}
	s.doc.Scored(v.Rewards)
	if err := s.report(phase.Info().Name, epoch, s.doc.Epoch(epoch, m)); err != nil {
		return err
	}
	if s.pos.PhaseDone {
		kept, err := s.restoreBest(phase.Info().Name)
		if err != nil {
			return err
		}
		if kept != epoch { // what the phase hands on is another policy than the one just validated
			if v, err = Validate(env.Policy, reference, env.Data.Val, env.Data); err != nil {
				return fmt.Errorf("validation: %w", err)
			}
			if err := s.note(phase.Info().Name, epoch, "restored_best", fmt.Sprintf("%s hands on its epoch %d, the best by %s (checkpoint.restore_best)", phase.Info().Name, kept, s.rule.metric)); err != nil {
				return err
			}
		}
		if err := s.recordEval("val", phase.Info().Name, phase.Info().Name, kept, env.Data.Val, v, referenceName); err != nil {
			return err
		}
		if _, err := s.evaluateHeldOut(env.Policy, reference, phase.Info().Name, phase.Info().Name, kept, referenceName); err != nil {
			return err
		}
	}
	if s.saved = saved; !saved {
		return nil
	}
	return s.saveEpochState(phase, epoch, file)
}

// restoreBest loads the best epoch of a phase that has ended, if checkpoint.restore_best says so, and returns
// the number of the epoch whose weights the policy has then.
func (s *scheduler) restoreBest(phase string) (epoch int, err error) {
	if !s.plan.Checkpoint.RestoreBest {
		return s.pos.Epoch, nil
	}
	b := s.rule.ofPhase(s.pos.History, phase)
	return b.Epoch, loadWeights(filepath.Join(s.ckpt, b.File), s.env.Policy)
}

func (s *scheduler) saveEpochState(phase Phase, epoch int, file string) error {
	var err error
	if s.pos.Rows, s.pos.Evals, s.pos.Completions, err = s.env.Rec.Mark(); err != nil {
		return err
	}
	s.pos.Weights, s.pos.Doctor = file, s.doc.State()
	name := fmt.Sprintf("%s_epoch%d%s", phase.Info().Name, epoch, stateSuffix)
	if err := s.pos.save(s.ckpt, name, s.env, phase, false); err != nil {
		return err
	}
	if err := s.dropMidEpoch(""); err != nil {
		return err
	}
	if err := s.links(file); err != nil {
		return err
	}
	return s.prune()
}

// links points best and last at their checkpoints.
func (s *scheduler) links(last string) error {
	if err := atomicfile.Symlink(last, filepath.Join(s.ckpt, "last.safetensors")); err != nil {
		return err
	}
	return atomicfile.Symlink(s.pos.Best.Candidate.File, filepath.Join(s.ckpt, "best.safetensors"))
}

// prune removes old checkpoints and states as checkpoint.keep and keep_states say. The initial policy
// and the best checkpoint stay.
func (s *scheduler) prune() error {
	var files []bestCandidate // that training wrote
	for _, c := range s.pos.History[1:] {
		if c.Saved {
			files = append(files, c)
		}
	}
	stale := func(keep *int) []bestCandidate {
		if keep == nil || len(files) <= *keep {
			return nil
		}
		return files[:len(files)-*keep]
	}
	for _, c := range stale(s.plan.Checkpoint.Keep) {
		handedOn := s.plan.Checkpoint.RestoreBest && c.File == s.rule.ofPhase(s.pos.History, c.Phase).File
		if c.File != s.pos.Best.Candidate.File && !handedOn {
			if err := os.RemoveAll(filepath.Join(s.ckpt, c.File)); err != nil {
				return err
			}
		}
		if err := atomicfile.RemoveAll(s.statePath(c)); err != nil {
			return err
		}
	}
	for _, c := range stale(s.plan.Checkpoint.KeepStates) {
		if err := atomicfile.RemoveAll(s.statePath(c)); err != nil {
			return err
		}
	}
	return nil
}

func (s *scheduler) statePath(c bestCandidate) string {
	return filepath.Join(s.ckpt, fmt.Sprintf("%s_epoch%d%s", c.Phase, c.Epoch, stateSuffix))
}

// finish settles what a kill after the last state may have left (links, states to drop), warns when no checkpoint qualified, and evaluates
// the best policy on the held-out queries.
func (s *scheduler) finish() (Result, error) {
	b := s.pos.Best
	mode := "max"
	if s.rule.sign < 0 {
		mode = "min"
	}
	r := Result{Mode: mode, BestPhase: b.Candidate.Phase, BestEpoch: b.Candidate.Epoch, BestFile: filepath.Join("checkpoints", b.Candidate.File), Metric: s.rule.metric, Value: b.Candidate.Value, KL: b.Candidate.KL, Pruned: s.pos.Pruned}
	if err := s.links(s.pos.History[len(s.pos.History)-1].File); err != nil {
		return r, err
	}
	if err := s.dropMidEpoch(""); err != nil {
		return r, err
	}
	if err := s.prune(); err != nil {
		return r, err
	}
	if nearest, none := s.rule.outside(s.pos.History); none {
		r.Warnings = append(r.Warnings, fmt.Sprintf("no epoch has val_kl ≤ %g (checkpoint.best.kl_max): best is the initial policy; the nearest is %s epoch %d with %.4g nats", s.rule.klMax, nearest.Phase, nearest.Epoch, nearest.KL))
		if err := s.event(b.Candidate.Phase, b.Candidate.Epoch, "best_outside_kl", r.Warnings[0]); err != nil {
			return r, err
		}
	} else if nearest, trained := s.rule.nearest(s.pos.History); trained && b.Candidate.Epoch == 0 {
		message := fmt.Sprintf("best is the initial policy: it has %s %.4g, and the best epoch, %s epoch %d, %.4g",
			s.rule.metric, b.Candidate.Value, nearest.Phase, nearest.Epoch, nearest.Value)
		if err := s.event(b.Candidate.Phase, b.Candidate.Epoch, "best_is_initial", message); err != nil {
			return r, err
		}
	}
	if err := loadWeights(filepath.Join(s.ckpt, b.Candidate.File), s.env.Policy); err != nil {
		return r, err
	}
	v, err := Validate(s.env.Policy, s.env.Initial, s.env.Data.Val, s.env.Data)
	if err != nil {
		return r, err
	}
	if err := s.recordEval("val", "best", b.Candidate.Phase, b.Candidate.Epoch, s.env.Data.Val, v, initReference); err != nil {
		return r, err
	}
	held, err := s.evaluateHeldOut(s.env.Policy, s.env.Initial, "best", b.Candidate.Phase, b.Candidate.Epoch, initReference)
	r.InitialEval, r.BestEval = s.initialEval, cmp.Or(held, &v)
	return r, err
}

// evaluateHeldOut scores a policy on the queries that enter no choice: held-out ones, whose result it returns (nil
// where there are none), and training queries.
func (s *scheduler) evaluateHeldOut(p, reference selector.Policy, name, phase string, epoch int, referenceName string) (held *Validation, err error) {
	data := s.env.Data
	for _, of := range []struct {
		split string
		src   selector.Source
	}{{data.EvalName, data.Eval}, {"train", data.Train}} {
		if of.src == nil {
			continue
		}
		v, err := Validate(p, reference, of.src, data)
		if err != nil {
			return nil, fmt.Errorf("evaluating %s on %s: %w", name, of.split, err)
		}
		if of.src == data.Eval {
			held = &v
		}
		if err := s.recordEval(of.split, name, phase, epoch, of.src, v, referenceName); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// recordEval records an evaluation as a row, and query by query for paired comparisons.
func (s *scheduler) recordEval(split, policy, phase string, epoch int, src selector.Source, v Validation, reference string) error {
	m := v.Metrics("")
	m["split"], m["policy"], m["kl_reference"] = split, policy, reference
	if err := s.env.Rec.Record("eval", phase, epoch, s.pos.Step, s.pos.GlobalStep, m); err != nil {
		return err
	}
	ids := make([]int64, src.Len())
	for i := range ids {
		ids[i] = src.ID(i)
	}
	record := func(metric string, ids []int64, scores []float64) error {
		return s.env.Rec.Scores(Scores{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Metric: metric, Shots: s.env.Data.Shots,
			QueryIDs: ids, Values: scores, ChosenFrom: s.chosenFrom(split, policy)})
	}
	for _, of := range []struct {
		metric string
		scores []float64
	}{{"reward", v.Rewards}, {"accuracy", v.Accuracies}} {
		if len(of.scores) == len(ids) && len(ids) > 0 {
			if err := record(of.metric, ids, of.scores); err != nil {
				return err
			}
		}
	}
	return v.Recorded.Each(record)
}

// chosenFrom returns how many checkpoints competed for a policy on the queries of a split; 0 where none did: the last
// of a phase was not chosen, unless checkpoint.restore_best hands on the best.
func (s *scheduler) chosenFrom(split, policy string) int {
	if n := len(s.pos.History); split == "val" && n > 1 && (policy == "best" || s.plan.Checkpoint.RestoreBest) {
		return n
	}
	return 0
}

// event records a warning, note what a reader should know.
func (s *scheduler) event(phase string, epoch int, name, message string) error {
	return s.tell("warning", phase, epoch, name, message)
}

func (s *scheduler) note(phase string, epoch int, name, message string) error {
	return s.tell("note", phase, epoch, name, message)
}

func (s *scheduler) tell(severity, phase string, epoch int, name, message string) error {
	return s.env.Rec.Record("event", phase, epoch, s.pos.Step, s.pos.GlobalStep, Metrics{"event": name, "severity": severity, "message": message})
}
