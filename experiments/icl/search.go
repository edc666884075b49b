package icl

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/beamdata/icl"
	"fulcrum/experiments/lvlm"
	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/rewardutil/text"
	"fulcrum/rewardutil/vqa"
)

// Search grows sequences of demonstrations for a query one at a time, as Lever-LM does (Yang et al. 2023, arXiv:2312.10104):
// each beam with each candidate that it does not hold, and the Width best of all go on.
type Search struct {
	Scorer   lvlm.Scorer
	Records  *icl.Table
	Captions *text.CIDEr // of score cider
	Seed     int64       // of the noise
	BeamsOptions
}

// Beam is a sequence of demonstrations with its score.
type Beam struct {
	Rows  []int32 // records, in the order of the prompt
	Score float64
	Prob  float64 // the scored answer's probability, the geometric mean of its tokens; 0 where the model answers itself
	Said  string  // what of the greedy answer is judged, of vqa and cider

	probs []float64 // of each answer
}

// answers returns the answers scored for a query; a single "" if the model answers itself.
func (s *Search) answers(r icl.Record) []string {
	switch {
	case s.greedy():
		return []string{""}
	case s.Answer == "first":
		return r.Answers[:1]
	case s.Answer == "best":
		return list.Unique(r.Answers)
	}
	return []string{vqa.Majority(r.Answers)}
}

// greedy says whether the model's own answer is judged.
func (s *Search) greedy() bool { return s.Score == "cider" || s.Score == "vqa" }

// Prompts returns how many prompts each step asks about for a query with a pool of so many candidates: the query alone first,
// then with 1 to Shots demonstrations.
func (s *Search) Prompts(r icl.Record, pool int) []int {
	answers := len(s.answers(r))
	out, beams := make([]int, s.Shots+1), 1
	if s.Score == "infoscore" {
		out[0] = answers
	}
	for k := range s.Shots {
		grown := beams * max(pool-k, 0)
		out[k+1], beams = grown*answers, min(s.Width, grown)
	}
	return out
}

// Beams returns the best sequences for a query, the best first, and those that the last step compared them with. Of equal
// scores the one that grew out of the better beam comes first, then the one whose last candidate stands earlier in the pool.
func (s *Search) Beams(ctx context.Context, query int, pool []int32) (best, compared []Beam, err error) {
	answers := s.answers(s.Records.At(query))
	beams := []Beam{{}}
	if s.Score == "infoscore" {
		if err := s.judge(ctx, query, answers, beams, nil, nil); err != nil {
			return nil, nil, err
		}
	}
	for k := range s.Shots {
		var grown []Beam
		var from []int
		for i, b := range beams {
			for _, c := range pool {
				if !slices.Contains(b.Rows, c) {
					grown, from = append(grown, Beam{Rows: s.with(b.Rows, c)}), append(from, i)
				}
			}
		}
		if len(grown) == 0 {
			return nil, nil, fmt.Errorf("query %d: its pool of %d has too few candidates for %d shots", s.Records.ID(query), len(pool), s.Shots)
		}
		if err := s.judge(ctx, query, answers, grown, from, beams); err != nil {
			return nil, nil, err
		}
		if s.Noise > 0 {
			r := rng.New(s.Seed, "beam noise", query, k)
			for i := range grown {
				off := s.Noise * r.NormFloat64()
				grown[i].Score, grown[i].Prob = grown[i].Score+off, min(max(grown[i].Prob+off, 0), 1)
			}
		}
		slices.SortStableFunc(grown, func(a, b Beam) int { return cmp.Compare(b.Score, a.Score) })
		beams, compared = grown[:min(s.Width, len(grown))], grown
		if len(grown) > s.Width {
			if err := Doubt(s.Scorer, s.prompts(query, answers, grown[s.Width-1:s.Width+1])); err != nil {
				return nil, nil, err
			}
		}
	}
	return beams, compared, nil
}

// with returns the rows and a new one where the order wants it.
func (s *Search) with(rows []int32, c int32) []int32 {
	if s.Order == "left" {
		return append([]int32{c}, rows...)
	}
	return append(slices.Clone(rows), c)
}

// Doubt has a server asked again for the prompts that a choice hangs on: those of the last that was kept and of the first that was not.
func Doubt(scorer lvlm.Scorer, prompts []lvlm.Prompt) error {
	if s, ok := scorer.(interface {
		Doubt(prompts []lvlm.Prompt) error
	}); ok {
		return s.Doubt(prompts)
	}
	return nil
}

// prompts returns what is asked about beams, for each of them one prompt an answer.
func (s *Search) prompts(query int, answers []string, beams []Beam) []lvlm.Prompt {
	prompts := make([]lvlm.Prompt, 0, len(beams)*len(answers))
	for _, b := range beams {
		p := Prompt(s.Records, query, b.Rows, vqa.Majority)
		for _, a := range answers {
			p.Query.Answer = a
			prompts = append(prompts, p)
		}
	}
	return prompts
}

// judge fills the scores of beams; beam i was grown out of before[from[i]].
func (s *Search) judge(ctx context.Context, query int, answers []string, beams []Beam, from []int, before []Beam) error {
	r, prompts := s.Records.At(query), s.prompts(query, answers, beams)
	if s.greedy() {
		said, err := s.Scorer.Answer(ctx, prompts)
		for i := range said {
			beams[i].Said, beams[i].Score = s.grade(said[i].Text, r.Answers)
		}
		return err
	}
	found, err := s.Scorer.Score(ctx, prompts)
	if err != nil {
		return err
	}
	for i := range beams {
		b, top := &beams[i], math.Inf(-1)
		for k := range answers {
			prob := math.Exp(stat.Mean(found[i*len(answers)+k].LogProbs))
			score := prob
			if s.Score == "infoscore" && before != nil {
				score -= before[from[i]].probs[k]
			}
			if b.probs = append(b.probs, prob); score > top {
				top, b.Score, b.Prob = score, score, prob
			}
		}
	}
	return nil
}

// Prompt puts demonstrations before a query, each with the one of its answers that shown picks. Rows are places in records.
func Prompt(records *icl.Table, query int, shots []int32, shown func(answers []string) string) lvlm.Prompt {
	example := func(r icl.Record) lvlm.Example { return lvlm.Example{ID: r.ID, Image: r.Image, Question: r.Question} }
	p := lvlm.Prompt{Query: example(records.At(query))}
	for _, row := range shots {
		r := records.At(int(row))
		e := example(r)
		e.Answer = shown(r.Answers)
		p.Shots = append(p.Shots, e)
	}
	return p
}

// Probe asks about n sequences of k demonstrations, as step k of a search does: what its rate is measured by. The last of them is
// the same for every k: as in a search, its picture is new in the first step alone.
func (s *Search) Probe(ctx context.Context, query int, pool []int32, k, n int) (prompts []lvlm.Prompt, err error) {
	answers, beams := s.answers(s.Records.At(query))[:1], []Beam{{}}
	if k > 0 {
		beams = list.Map(pool[s.Shots-1:min(s.Shots-1+n, len(pool))], func(c int32) Beam { return Beam{Rows: s.with(pool[:k-1], c)} })
	}
	prompts = list.Map(beams, func(b Beam) lvlm.Prompt { return Prompt(s.Records, query, b.Rows, vqa.Majority) })
	return prompts, s.judge(ctx, query, answers, beams, nil, nil)
}

// grade returns what of a reply is judged, and its metric.
func (s *Search) grade(reply string, answers []string) (said string, score float64) {
	if said = Judged(reply, s.Score == "cider"); s.Score == "cider" {
		return said, s.Captions.Score(said, answers)
	}
	return said, vqa.Accuracy(said, answers, false)
}

// Judged returns what of a model's reply is a result, and so what a reward must judge: its answer, or the caption of its first line.
func Judged(reply string, caption bool) string {
	said, _, _ := strings.Cut(strings.TrimSpace(reply), "\n") // what follows a caption is another turn
	if !caption {
		said = vqa.ExtractAnswer(reply)
	}
	return strings.TrimSpace(said)
}

// Answered refuses queries and candidates whose record has no answer to show or to judge by: a run would meet them by chance.
func Answered(records *icl.Table, sets ...*beamdata.Set) error {
	if !slices.ContainsFunc(stat.Indices(records.Len()), func(row int) bool { return !records.Answered(row) }) {
		return nil
	}
	for _, set := range sets {
		for q := range set.Len() {
			for _, row := range slices.Concat([]int32{set.Row(q)}, set.Pool(q)) {
				if !records.Answered(int(row)) {
					return fmt.Errorf("query %d of the %s queries: record %d has no answer to show or to judge by: leave it out of the beam file",
						records.ID(int(set.Row(q))), set.Name, records.ID(int(row)))
				}
			}
		}
	}
	return nil
}

// Rewards scores one sequence of demonstrations for each query, all in one call: the probability of its answer, or the metric of
// the model's own, which is the accuracy too where it is one (nil: it is not).
func (s *Search) Rewards(ctx context.Context, queries []int, shots [][]int32) (rewards, accuracy []float64, err error) {
	prompts := make([]lvlm.Prompt, len(queries))
	for i, q := range queries {
		for _, row := range append(shots[i][:len(shots[i]):len(shots[i])], int32(q)) {
			if !s.Records.Answered(int(row)) {
				return nil, nil, fmt.Errorf("query %d: record %d has no answer to show or to judge by", s.Records.ID(q), s.Records.ID(int(row)))
			}
		}
		prompts[i] = Prompt(s.Records, q, shots[i], vqa.Majority)
		prompts[i].Query.Answer = s.answers(s.Records.At(q))[0]
	}
	if s.greedy() {
		said, err := s.Scorer.Answer(ctx, prompts)
		for i := range said {
			_, score := s.grade(said[i].Text, s.Records.At(queries[i]).Answers)
			rewards = append(rewards, score)
		}
		if s.Score == "vqa" {
			accuracy = rewards
		}
		return rewards, accuracy, err
	}
	found, err := s.Scorer.Score(ctx, prompts)
	return list.Map(found, func(l lvlm.Likelihood) float64 { return math.Exp(stat.Mean(l.LogProbs)) }), nil, err
}

// References counts n-grams in the answers of all records, for CIDEr-D.
func References(records *icl.Table) *text.CIDEr {
	return text.NewCIDEr(list.Make(records.Len(), func(i int) []string { return records.At(i).Answers }))
}
