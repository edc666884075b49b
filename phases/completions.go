package phases

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/stat"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
)

// CompletionOptions configures which sampled completions are kept for reading (completions.jsonl).
type CompletionOptions struct {
	// groups of the first step of each epoch that are kept; 0 = none
	Groups int `koanf:"groups" range:"[0,10000]"`
}

func DefaultCompletionOptions() CompletionOptions { return CompletionOptions{Groups: 2} }

// Record hands the first groups of a scored batch to the recorder, with their advantages.
func (o CompletionOptions) Record(rec Recorder, phase string, epoch, step int, b *selector.Batch, opt advantage.Options) error {
	if rec == nil {
		return nil
	}
	adv, _ := advantage.Compute(b.Gains(), b.Valid, b.B(), b.G, opt)
	var rows []Completion
	for at, ok := range b.Valid[:min(o.Groups, b.B())*b.G] {
		if !ok {
			continue
		}
		i, c := at/b.G, at%b.G
		row := Completion{QueryID: b.Source.ID(b.Queries[i]), Group: c, Tokens: slices.Clone(b.Scored(i, c)),
			Truncated: b.Cut(at), Reward: b.Rewards[at], Advantage: adv[at]}
		if b.Texts != nil {
			row.Text = b.Texts[at]
		}
		if math.IsNaN(row.Reward+row.Advantage) || math.IsInf(row.Reward, 0) {
			return fmt.Errorf("query %d: the reward of completion %d is %v: want a finite number", row.QueryID, c, row.Reward)
		}
		for name, term := range b.Terms {
			if row.Terms == nil {
				row.Terms = map[string]float64{}
			}
			row.Terms[name] = term[at]
		}
		rows = append(rows, row)
	}
	return rec.Completions(phase, epoch, step+1, rows)
}

// TextMetrics are the numbers of a batch of completions.
type TextMetrics struct {
	Tokens         *int               `metric:"tokens"` // scored, in the batch of the step
	Length         *float64           `metric:"completion_length"`
	LengthMin      *int               `metric:"completion_length_min"`
	LengthMax      *int               `metric:"completion_length_max"`
	TruncatedShare *float64           `metric:"truncated_share"`
	KeptMass       *float64           `metric:"kept_mass"` // share of the policy's distribution that samples were drawn from
	Terms          map[string]float64 // reward_NAME and reward_NAME_std
}

// MeasureTexts measures the completions of a batch with a number of scored tokens.
func MeasureTexts(b *selector.Batch, tokens int) TextMetrics {
	out := TextMetrics{Tokens: &tokens}
	sum, least, most, cut, n, kept := 0, math.MaxInt, 0, 0, 0, 0.0
	for at, ok := range b.Valid {
		if !ok {
			continue
		}
		length := len(b.Scored(at/b.G, at%b.G))
		n, sum, least, most = n+1, sum+length, min(least, length), max(most, length)
		if b.Cut(at) {
			cut++
		}
		if b.Kept != nil {
			kept += b.Kept[at] * float64(length)
		}
	}
	if n == 0 {
		return out
	}
	out.Length, out.LengthMin, out.LengthMax, out.TruncatedShare = new(objective.Share(sum, n)), &least, &most, new(objective.Share(cut, n))
	if b.Kept != nil && sum > 0 {
		out.KeptMass = new(kept / float64(sum))
	}
	out.Terms = map[string]float64{}
	for name, term := range b.Terms {
		x, _ := group.Gather(term, b.Valid)
		mean := stat.Mean(x)
		out.Terms["reward_"+name], out.Terms["reward_"+name+"_std"] = mean, math.Sqrt(stat.Squares(x, mean)/float64(len(x)))
	}
	return out
}

// SampleGroups draws g candidates of up to steps actions for each query from a policy and scores them, as the online
// phases do. The preflight compares their rewards with the reward of each candidate alone.
func SampleGroups(p selector.Policy, src selector.Source, queries []int, g, steps int, temperature float64, key uint64) (*selector.Batch,
	error) {
	scorer, ok := src.(selector.Scorer)
	if !ok || !scorer.CanScore() {
		return nil, fmt.Errorf("%s has no reward function: sampled candidates cannot be scored", src.Name())
	}
	b := p.Sample(src, queries, g, steps, temperature, key)
	return b, scorer.Score(b)
}

// Enumerate returns all selections of so many examples for each query, scored.
func Enumerate(src selector.Source, queries []int, steps int) (*selector.Batch, error) {
	all, ok := src.(selector.Enumerator)
	if !ok || !all.CanScore() {
		return nil, fmt.Errorf("%s: only a selector's queries with a reader have selections to enumerate", src.Name())
	}
	b, err := all.Enumerate(queries, steps)
	if err != nil {
		return nil, err
	}
	return b, all.Score(b)
}
