package phases

import (
	"cmp"
	"fmt"
	"path/filepath"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/selector"
)

// start validates and saves the initial policy: epoch 0, which competes for best.
func (s *scheduler) start() error {
	file := InitialCheckpoint
	v, err := s.validate(file, s.env.Data.Val, s.env.Initial, s.initial())
	if err != nil {
		return fmt.Errorf("validating the initial policy: %w", err)
	}
	m := v.Metrics("val_")
	s.pos.Metric = metricOf(s.plan.Checkpoint.Best, s.canScore, m)
	s.rule = newRule(s.plan.Checkpoint.Best, s.pos.Metric)
	value, err := s.rule.value(m)
	if err != nil {
		return err
	}
	s.doc.Start(v.Metrics(""), standardError(v.scores()))
	s.doc.Known(s.env.Baselines)
	s.doc.Handed(v.scores())
	if err := s.write(file, s.env.Initial, "init", 0, m); err != nil {
		return err
	}
	s.pos.History = []bestCandidate{{Phase: "init", File: file, Value: number(value), KL: number(v.KL), Loss: number(v.Loss), Saved: true}}
	s.pos.Best, s.pos.HighestScores = s.rule.choose(s.pos.History), v.perQuery(s.rule.metric)
	if err := s.recordEval("val", "init", "init", 0, s.env.Data.Val, v, s.initial()); err != nil {
		return err
	}
	held, err := s.evaluateHeldOut(s.env.Initial, file, "init", "init", 0, s.initial())
	s.initialEval = cmp.Or(held, &v)
	return err
}

// finish tidies the folder, warns if no checkpoint qualified, and evaluates
// the best policy on the held-out queries.
func (s *scheduler) finish() (Result, error) {
	b := s.pos.Best
	mode := "max"
	if s.rule.sign < 0 {
		mode = "min"
	}
	r := Result{Mode: mode, BestPhase: b.Candidate.Phase, BestEpoch: b.Candidate.Epoch, Account: s.pos.Account,
		BestFile: filepath.Join("checkpoints", b.Candidate.File), Metric: s.rule.metric, Value: float64(b.Candidate.Value),
		KL: float64(b.Candidate.KL), Pruned: s.pos.Pruned, Choice: s.rule.reason(b)}
	if err := s.tidy(); err != nil {
		return r, err
	}
	if nearest, none := s.rule.outside(s.pos.History); none {
		r.Warnings = append(r.Warnings, fmt.Sprintf("no epoch has val_kl ≤ %g (checkpoint.best.kl_max): best is the initial policy; the "+
			"nearest is %s epoch %d with %.4g nats", s.rule.klMax, nearest.Phase, nearest.Epoch, nearest.KL))
		if err := s.event("warning", b.Candidate.Phase, b.Candidate.Epoch, "best_outside_kl", r.Warnings[0]); err != nil {
			return r, err
		}
	} else if nearest, trained := s.rule.nearest(s.pos.History); trained && b.Candidate.Epoch == 0 {
		why := initialStays(s.rule.metric, b.Candidate, nearest)
		if err := s.event("warning", b.Candidate.Phase, b.Candidate.Epoch, "best_is_initial", why); err != nil {
			return r, err
		}
	}
	if err := s.load(b.Candidate.File, s.env.Policy); err != nil {
		return r, err
	}
	v, err := s.validate(b.Candidate.File, s.env.Data.Val, s.env.Policy, s.initial())
	if err != nil {
		return r, err
	}
	if err := s.recordEval("val", "best", b.Candidate.Phase, b.Candidate.Epoch, s.env.Data.Val, v, s.initial()); err != nil {
		return r, err
	}
	held, err := s.evaluateHeldOut(s.env.Policy, b.Candidate.File, "best", b.Candidate.Phase, b.Candidate.Epoch, s.initial())
	r.InitialEval, r.BestEval = s.initialEval, cmp.Or(held, &v)
	return r, err
}

// tidy repairs the links, and drops states, that a kill after the last state may have left.
func (s *scheduler) tidy() error {
	if !s.first() {
		return nil
	}
	if err := s.links(s.pos.Best.Candidate.File, s.pos.History[len(s.pos.History)-1].File); err != nil {
		return err
	}
	if err := s.dropMidEpoch(""); err != nil {
		return err
	}
	return remove(s.outdated())
}

// evaluateHeldOut scores the policy of a checkpoint on the queries that take part in no choice: held-out ones and training queries. It
// returns the result on the held-out queries; nil without them.
func (s *scheduler) evaluateHeldOut(p selector.Policy, file, name, phase string, epoch int, ref reference) (held *Validation, err error) {
	data := s.env.Data
	for _, of := range []struct {
		split string
		src   selector.Source
	}{{data.EvalName, data.Eval}, {"train", data.Train}} {
		if of.src == nil {
			continue
		}
		v, err := s.validate(file, of.src, p, ref)
		if err != nil {
			return nil, fmt.Errorf("evaluating %s on %s: %w", name, of.split, err)
		}
		if of.src == data.Eval {
			held = &v
		}
		if err := s.recordEval(of.split, name, phase, epoch, of.src, v, ref); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// recordEval records an evaluation as a row, and query by query for paired comparisons.
func (s *scheduler) recordEval(split, policy, phase string, epoch int, src selector.Source, v Validation, ref reference) error {
	m := v.Metrics("")
	m["split"], m["policy"] = split, policy
	if ref.policy != nil {
		m["kl_reference"] = ref.name
	}
	if err := s.env.Rec.Record("eval", phase, epoch, s.pos.Step, s.pos.GlobalStep, m); err != nil {
		return err
	}
	ids := list.Map(stat.Indices(src.Len()), src.ID)
	record := func(metric string, ids []int64, scores []float64) error {
		return s.env.Rec.Scores(Scores{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Metric: metric, Shots: s.env.Data.Shots,
			QueryIDs: ids, Values: scores, ChosenFrom: s.chosenFrom(src, policy)})
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

// chosenFrom returns the number of checkpoints among which a policy was chosen on the queries of src; 0: it was not
// chosen. The last of a phase is chosen only with checkpoint.restore_best.
func (s *scheduler) chosenFrom(src selector.Source, policy string) int {
	if n := len(s.pos.History); src == s.env.Data.Val && n > 1 && (policy == "best" || s.plan.Checkpoint.RestoreBest) {
		return n
	}
	return 0
}
