package texts

import (
	"fmt"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/summaries"
)

// Summaries returns the built-in summarisation set with opt's prefix.
func Summaries(sizes summaries.Options, opt Options) (*conversation.Bundle, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("data.texts.%w", err)
	}
	set := summaries.New(sizes)
	of := func(split string) *conversation.Set {
		return conversation.NewSet(split, builtIn{set, split, opt.Prefix}, conversation.Rows(set.Len(split)))
	}
	b := &conversation.Bundle{
		Name: "summaries", Synthetic: true, EvalName: summaries.Test,
		Notice: "synthetic data: generated reports with summaries by simulated writers, made for demonstration; give " +
			"data=texts for real data",
		Train: of(summaries.Train), Val: of(summaries.Val), Eval: of(summaries.Test),
	}
	if sizes.Drafts > 0 {
		b.Demos = of(summaries.Drafts)
	}
	b.Limit(opt.MaxSamples, opt.Demos)
	return b.Seal(), nil
}

// builtIn is one split of the built-in set.
type builtIn struct {
	set    *summaries.Set
	split  string
	prefix string
}

func (s builtIn) Sample(row int64) (conversation.Sample, error) {
	e := s.set.Example(s.split, int(row))
	r := record{id: fmt.Sprintf("%s %d", s.split, row), source: e.Source, target: e.Target}
	return r.sample(row, s.prefix), nil
}

// Holds reports that every report has a summary.
func (s builtIn) Holds(need conversation.Need) bool { return need == conversation.Target }

func (s builtIn) Fingerprint() string {
	return fmt.Sprintf("summaries %s %+v %q", s.split, s.set.Options(), s.prefix)
}
