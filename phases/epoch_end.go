package phases

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/ranks"
	"fulcrum/internal/regular"
	"fulcrum/selector"
)

// validateAndSave ends an epoch: validation, the epoch's row, the checkpoint, the state of a resume.
func (s *scheduler) validateAndSave(ctx context.Context, phase Phase, epoch int) error {
	env := s.env
	if err := finite(env); err != nil {
		return err
	}
	m := s.pos.Sums.means()
	info, ref := phase.Info(), s.referenceOf(phase)
	file := checkpointName(info.Name, epoch)
	v, err := s.validate(file, env.Data.Val, env.Policy, ref)
	if stopped(ctx, err) { // the epoch's end has not begun: a resume validates first
		return cmp.Or(s.maybeSave(err, phase, At{Epoch: epoch}), err)
	}
	if err != nil {
		return fmt.Errorf("validation: %w", err)
	}
	if err := s.look(); err != nil {
		return err
	}
	maps.Copy(m, EndEpoch(phase))
	maps.Copy(m, v.Metrics("val_"))
	if ref.policy != nil {
		m["kl_reference"] = ref.name
	}
	stopped, saved, err := s.decide(info, epoch, m, v)
	if err != nil {
		return err
	}
	if saved {
		if err := s.write(file, env.Policy, info.Name, epoch, v.Metrics("val_")); err != nil {
			return err
		}
		if env.Export != nil && s.first() {
			if err := env.Export(filepath.Join(s.ckpt, file), info.Name, epoch, m); err != nil {
				return err
			}
		}
		m["checkpoint"] = filepath.Join("checkpoints", file)
	}
	if err := env.Rec.Record("epoch", info.Name, epoch, s.pos.Step, s.pos.GlobalStep, m); err != nil {
		return err
	}
	if s.pos.Pruned != "" {
		if err := s.event("note", info.Name, epoch, "pruned", s.pos.Pruned); err != nil {
			return err
		}
	} else if stopped {
		message := fmt.Sprintf("%s ends after epoch %d: %s has not improved for %d epochs (checkpoint.patience_epochs)",
			info.Name, epoch, s.rule.metric, *s.plan.Checkpoint.PatienceEpochs)
		if err := s.event("warning", info.Name, epoch, "early_stop", message); err != nil {
			return err
		}
	}
	// of policies that can no longer be the best of the run or of the phase
	last, own := s.pos.History[len(s.pos.History)-1], s.rule.ofPhase(s.pos.History, info.Name).Candidate
	maps.DeleteFunc(s.validated, func(of scored, _ Validation) bool {
		return of.file != s.pos.Best.Candidate.File && of.file != own.File && of.file != last.File
	})
	s.doc.Scored(v.scores())
	if err := s.report(info.Name, epoch, s.doc.Epoch(epoch, m)); err != nil {
		return err
	}
	if s.pos.PhaseDone {
		if err := s.handOn(phase, epoch, v); err != nil {
			return err
		}
	}
	if s.saved = saved; !saved {
		return nil
	}
	return s.saveEpochState(phase, epoch, file)
}

// write writes a checkpoint, once the state before it is written and the old ones are gone, and keeps its digest.
func (s *scheduler) write(file string, p selector.Policy, phase string, epoch int, m Metrics) (err error) {
	if err := s.settle(); err != nil || !s.first() {
		return err
	}
	if s.pos.Written == nil {
		s.pos.Written = digest.Sums{}
	}
	s.pos.Written[file], err = saveWeights(filepath.Join(s.ckpt, file), p, phase, epoch, s.env.ConfigHash, m)
	return err
}

// decide adds an epoch with metrics m to the candidates for best. It reports whether patience ends the phase here and
// whether the epoch is saved.
func (s *scheduler) decide(info Info, epoch int, m Metrics, v Validation) (stopped, saved bool, err error) {
	value, err := s.rule.value(m)
	if err != nil {
		return false, false, err
	}
	file, scores := checkpointName(info.Name, epoch), v.perQuery(s.rule.metric)
	if s.rule.highest {
		scores = nil
	}
	s.pos.Epoch, s.pos.EpochSteps, s.pos.Sums = epoch, 0, sums{}
	s.pos.History = append(s.pos.History, bestCandidate{Phase: info.Name, Epoch: epoch, File: file, Value: number(value), KL: number(v.KL),
		NoKL: v.NoKL, Loss: number(v.Loss), Noise: pairedError(scores, s.pos.HighestScores), PhaseNoise: pairedError(scores, s.pos.PhaseScores)})
	if noise := s.pos.History[len(s.pos.History)-1].Noise; noise > 0 {
		m["val_paired_error"] = float64(noise)
	}
	if s.pos.Best = s.rule.choose(s.pos.History); s.pos.Best.Highest.File == file {
		s.pos.HighestScores = scores
	}
	if s.env.Judge != nil && s.first() {
		s.pos.Pruned, err = s.env.Judge(len(s.pos.History)-1, m, s.rule.metric, s.rule.sign < 0)
	}
	if s.pos.Pruned, err = ranks.Share(s.env.Ranks, "a pruner's word", s.pos.Pruned, err); err != nil {
		return false, false, err
	}
	patience := s.plan.Checkpoint.PatienceEpochs
	stopped = patience != nil && epoch < info.Epochs && s.pos.Best.stale(s.pos.History, info.Name) >= *patience
	s.pos.PhaseDone = stopped || epoch == info.Epochs || s.pos.Pruned != ""
	saved = s.pos.PhaseDone || epoch%s.plan.Checkpoint.EveryEpochs == 0 || s.pos.Best.Candidate.File == file
	s.pos.History[len(s.pos.History)-1].Saved = saved
	if s.plan.Checkpoint.RestoreBest && s.rule.ofPhase(s.pos.History, info.Name).Highest.File == file {
		s.pos.PhaseScores = scores
	}
	return stopped, saved, nil
}

// handOn ends a phase: it evaluates the policy from which the next one starts. v is its validation unless an earlier
// epoch is restored.
func (s *scheduler) handOn(phase Phase, epoch int, v Validation) error {
	name, ref := phase.Info().Name, s.referenceOf(phase)
	kept, err := s.restoreBest(name)
	if err != nil {
		return err
	}
	file := checkpointName(name, kept)
	if kept != epoch {
		if v, err = s.validate(file, s.env.Data.Val, s.env.Policy, ref); err != nil {
			return fmt.Errorf("validation: %w", err)
		}
		message := fmt.Sprintf("%s hands on its epoch %d, the best by %s (checkpoint.restore_best)", name, kept, s.rule.metric)
		if err := s.event("note", name, epoch, "restored_best", message); err != nil {
			return err
		}
	}
	s.doc.Handed(v.scores())
	if err := s.recordEval("val", name, name, kept, s.env.Data.Val, v, ref); err != nil {
		return err
	}
	_, err = s.evaluateHeldOut(s.env.Policy, file, name, name, kept, ref)
	return err
}

// restoreBest loads the best epoch of an ended phase if checkpoint.restore_best is set, and returns the number
// of the epoch whose weights the policy then has.
func (s *scheduler) restoreBest(phase string) (epoch int, err error) {
	if !s.plan.Checkpoint.RestoreBest {
		return s.pos.Epoch, nil
	}
	b := s.rule.ofPhase(s.pos.History, phase).Candidate
	return b.Epoch, s.load(b.File, s.env.Policy)
}

func (s *scheduler) saveEpochState(phase Phase, epoch int, file string) error {
	if err := s.look(); err != nil { // evaluations read, too
		return err
	}
	s.pos.Weights = file
	write, err := s.state(fmt.Sprintf("%s_epoch%d%s", phase.Info().Name, epoch, stateSuffix), phase, false)
	if err != nil || !s.first() {
		return err
	}
	best, old := s.pos.Best.Candidate.File, s.outdated()
	s.writing = make(chan error, 1)
	go func() {
		err := write()
		if err == nil { // else the older states are still needed
			err = s.links(best, file)
		}
		if err == nil {
			err = remove(old)
		}
		s.writing <- err
	}()
	return nil
}

// settle waits for the state that is written beside training.
func (s *scheduler) settle() error {
	if s.writing == nil {
		return nil
	}
	err := <-s.writing
	s.writing = nil
	return err
}

// state returns the writing of a state, which replaces those in mid-epoch, once the one before is written.
func (s *scheduler) state(name string, phase Phase, midEpoch bool) (write func() error, err error) {
	if err := s.settle(); err != nil {
		return nil, err
	}
	s.pos.Doctor = s.doc.State()
	if s.pos.Rows, s.pos.Evals, s.pos.Completions, err = s.env.Rec.Mark(); err != nil {
		return nil, err
	}
	state, err := s.pos.state(s.ckpt, name, s.env, phase, midEpoch)
	return func() error {
		if err := state(); err != nil {
			return err
		}
		return s.dropMidEpoch(name)
	}, err
}

// links makes best and last point at their checkpoints.
func (s *scheduler) links(best, last string) error {
	if err := atomicfile.Symlink(last, filepath.Join(s.ckpt, "last.safetensors")); err != nil {
		return err
	}
	return atomicfile.Symlink(best, filepath.Join(s.ckpt, "best.safetensors"))
}

// outdated returns the paths of old checkpoints (checkpoint.keep) and states (checkpoint.keep_states), each state before its weights, with
// which it goes. The initial policy and the best checkpoint with its state stay.
func (s *scheduler) outdated() (paths []string) {
	o, files := s.plan.Checkpoint, list.Filter(s.pos.History[1:], func(c bestCandidate) bool { return c.Saved }) // written by training
	keep := option.Or(o.Keep, math.MaxInt)
	for i, c := range files {
		newer := len(files) - 1 - i
		if c.File == s.pos.Best.Candidate.File || newer < min(keep, option.Or(o.KeepStates, math.MaxInt)) {
			continue
		}
		paths = append(paths, filepath.Join(s.ckpt, fmt.Sprintf("%s_epoch%d%s", c.Phase, c.Epoch, stateSuffix)))
		if newer < keep || o.RestoreBest && c.File == s.rule.ofPhase(s.pos.History, c.Phase).Candidate.File {
			continue
		}
		paths = append(paths, filepath.Join(s.ckpt, c.File))
	}
	return paths
}

func remove(paths []string) error {
	for _, path := range paths {
		if err := atomicfile.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// dropMidEpoch removes the mid-epoch states that a newer state replaces.
func (s *scheduler) dropMidEpoch(keep string) error {
	old, err := regular.Glob(s.ckpt, "*_step*"+stateSuffix)
	if err != nil {
		return err
	}
	return remove(list.Filter(old, func(path string) bool { return filepath.Base(path) != keep }))
}
