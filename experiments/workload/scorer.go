package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/beamdata/poolfeatures"
	"fulcrum/experiments/job"
	"fulcrum/internal/option"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
	"fulcrum/selector/pointer"
)

func (w *Pointer) Summary() record.DataSummary {
	s := dataSummary(w.bundle)
	s.Validated = w.validated
	if w.policy.Options().Features.Scorer {
		s.Scorer = scorerCalls(w.bundle)
	}
	return s
}

// scorerCalls counts what a selector asks the reader for, each pool once.
func scorerCalls(b *beamdata.Bundle) *record.ScorerCalls {
	calls, known := &record.ScorerCalls{}, map[int64]bool{}
	for _, s := range []*beamdata.Set{b.RCE, b.Records, b.Online, b.Val, b.Eval} {
		for i := range s.Len() {
			n, judged := s.PoolSize(i), s == b.Val || s == b.Eval
			calls.Query = max(calls.Query, n)
			switch {
			case judged:
				calls.Judged += n
			case !known[s.IDs[i]]:
				known[s.IDs[i]] = true
				calls.Training += n
			}
		}
	}
	return calls
}

// scorable refuses data whose queries no reward table scores, where the selector asks for the reader's scores.
func scorable(c *job.Config, b *beamdata.Bundle, opt pointer.FeatureOptions) error {
	if !opt.Scorer {
		return nil
	}
	for _, s := range []*beamdata.Set{b.RCE, b.Records, b.Online, b.Val, b.Eval, b.All} {
		if s.Len() > 0 && s.ReaderScores(0) == nil {
			key := "data.reader"
			if s == b.Eval {
				key = "data.eval.reader"
			}
			return usage.Errorf("selector.scorer=true asks the reader of a reward table, and the %s queries of %s have none: want %s=FILE.npz",
				s.Name, option.Or(c.Data.Beams, option.Or(c.Data.Records, "data.name="+b.Name)), key)
		}
	}
	return nil
}

// expandFeatures puts the features that suit the data in the place of selector.features=[standard], and says which it leaves out.
func expandFeatures(j *job.Job, b *beamdata.Bundle) {
	opt := &selectorOf(j.Config).Features
	if !slices.Contains(opt.Names, poolfeatures.Standard) { // who asks for none does not wait for the facts
		return
	}
	facts := firstSet(b.Val, b.All, b.Eval, b.RCE).Facts()
	names, left := poolfeatures.Expand(opt.Names, b.Features, facts)
	opt.Names = names
	if len(left) == 0 || j.Config.Init.Checkpoint != nil { // whose features count
		return
	}
	b.LeftOut = fmt.Sprintf("features of candidates: %s; left out, as they read columns missing from %s: %s", strings.Join(names, ", "),
		cmp.Or(facts.File, "items.jsonl (there is none)"), strings.Join(left, ", "))
	j.Logf("data: %s", b.LeftOut)
}
