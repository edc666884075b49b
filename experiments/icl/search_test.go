package icl

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/beamdata/icl"
	"fulcrum/experiments/lvlm"
	"fulcrum/internal/tensorfile"
	"fulcrum/rewardutil/text"
	"fulcrum/rewardutil/vqa"
)

// toy is a scorer whose numbers are an arithmetic function of what is asked: two tokens an answer, and an answer that is one of the
// demonstrations'.
type toy struct{ asked atomic.Int64 }

func toyNumber(p lvlm.Prompt, salt string) float64 {
	h := fnv.New64a()
	for _, e := range append(slices.Clone(p.Shots), p.Query) {
		fmt.Fprintf(h, "%s|%s|%s|", e.Image, e.Question, e.Answer)
	}
	fmt.Fprint(h, salt)
	return float64(h.Sum64()%100_003) / 100_003
}

func (t *toy) Identity() lvlm.Identity { return lvlm.Identity{Backend: "local", Model: "toy"} }
func (t *toy) Close() error            { return nil }

func (t *toy) Score(_ context.Context, prompts []lvlm.Prompt) (out []lvlm.Likelihood, err error) {
	t.asked.Add(int64(len(prompts)))
	for _, p := range prompts {
		out = append(out, lvlm.Likelihood{Tokens: []int{1, 2}, LogProbs: []float64{-toyNumber(p, "1"), -2 * toyNumber(p, "2")}})
	}
	return out, nil
}

func (t *toy) Answer(_ context.Context, prompts []lvlm.Prompt) (out []lvlm.Reply, err error) {
	t.asked.Add(int64(len(prompts)))
	for _, p := range prompts {
		at := int(toyNumber(p, "answer") * float64(len(p.Shots)))
		out = append(out, lvlm.Reply{Text: p.Shots[at].Answer})
	}
	return out, nil
}

// toyRecords are n questions with four annotators each.
func toyRecords(n int) *icl.Table {
	out := make([]icl.Record, n)
	for i := range out {
		answer := fmt.Sprintf("a big answer %d", i%5)
		out[i] = icl.Record{ID: int64(1000 + i), Question: fmt.Sprintf("what is %d?", i),
			Answers: []string{"other", answer, answer, answer, "third"}}
	}
	return icl.TableOf(out...)
}

func toyPool(n int) (pool []int32) {
	for i := range n {
		pool = append(pool, int32(i+1))
	}
	return pool
}

// TestSearch: with a width that keeps everything the search is exhaustive; with a narrow one every step keeps the best of what
// the step before kept. Scores are the definitions', computed prompt by prompt.
func TestSearch(t *testing.T) {
	set := toyRecords(9)
	captions := text.NewCIDEr([][]string{{"a big answer 0"}, {"a big answer 1"}, {"another"}})
	for _, o := range []BeamsOptions{
		{Score: "infoscore", Order: "left", Answer: "majority", Shots: 2, Width: 100},
		{Score: "infoscore", Order: "right", Answer: "best", Shots: 3, Width: 2},
		{Score: "likelihood", Order: "right", Answer: "first", Shots: 2, Width: 3},
		{Score: "vqa", Order: "left", Shots: 2, Width: 2},
		{Score: "cider", Order: "right", Shots: 2, Width: 2},
	} {
		model := &toy{}
		s := &Search{Scorer: model, Records: set, Captions: captions, BeamsOptions: o}
		pool := toyPool(6)
		got, _, err := s.Beams(context.Background(), 0, pool)
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, n := range s.Prompts(set.At(0), len(pool)) {
			total += n
		}
		if int(model.asked.Load()) != total {
			t.Errorf("%+v: %d prompts were asked, the plan says %d", o, model.asked.Load(), total)
		}
		want := slowBeams(s, pool)
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("%+v: %d beams, want %d", o, len(got), len(want))
		}
		for i := range want {
			if !slices.Equal(got[i].Rows, want[i].Rows) || math.Abs(got[i].Score-want[i].Score) > 1e-12 {
				t.Errorf("%+v: beam %d is %v with %v, want %v with %v", o, i, got[i].Rows, got[i].Score, want[i].Rows, want[i].Score)
			}
		}
	}
}

// slowBeams is the search as its definition reads: each sequence is scored on its own.
func slowBeams(s *Search, pool []int32) []Beam {
	prob := func(rows []int32, answer string) float64 {
		p := Prompt(s.Records, 0, rows, vqa.Majority)
		p.Query.Answer = answer
		return math.Exp((-toyNumber(p, "1") - 2*toyNumber(p, "2")) / 2)
	}
	answers := map[string][]string{"majority": {"a big answer 0"}, "first": {"other"}, "best": {"other", "a big answer 0", "third"}}[s.Answer]
	score := func(rows, before []int32) float64 {
		if s.greedy() {
			p := Prompt(s.Records, 0, rows, vqa.Majority)
			said := p.Shots[int(toyNumber(p, "answer")*float64(len(rows)))].Answer
			if s.Score == "cider" {
				return s.Captions.Score(said, s.Records.At(0).Answers)
			}
			// leave one out: three annotators say so, each sees two others, the two who differ see three
			return map[bool]float64{true: (3*2.0/3 + 2) / 5}[said == "a big answer 0"]
		}
		top := math.Inf(-1)
		for _, a := range answers {
			x := prob(rows, a)
			if s.Score == "infoscore" {
				x -= prob(before, a)
			}
			top = max(top, x)
		}
		return top
	}
	beams := []Beam{{}}
	for range s.Shots {
		var grown []Beam
		for _, b := range beams {
			for _, c := range pool {
				if slices.Contains(b.Rows, c) {
					continue
				}
				rows := append(slices.Clone(b.Rows), c)
				if s.Order == "left" {
					rows = append([]int32{c}, b.Rows...)
				}
				grown = append(grown, Beam{Rows: rows, Score: score(rows, b.Rows)})
			}
		}
		slices.SortStableFunc(grown, func(a, b Beam) int { return cmp.Compare(b.Score, a.Score) })
		beams = grown[:min(s.Width, len(grown))]
	}
	return beams
}

// TestNoise: noise of a seed is the same again, of another one other, moves what is found, and keeps probabilities within [0, 1].
func TestNoise(t *testing.T) {
	find := func(noise float64, seed int64) (best []Beam) {
		s := &Search{Scorer: &toy{}, Records: toyRecords(9), Seed: seed, BeamsOptions: BeamsOptions{Score: "infoscore", Order: "left",
			Answer: "majority", Shots: 2, Width: 4, Noise: noise}}
		best, compared, err := s.Beams(context.Background(), 0, toyPool(6))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range compared {
			if b.Prob < 0 || b.Prob > 1 {
				t.Errorf("noise %v: a probability of %v", noise, b.Prob)
			}
		}
		return best
	}
	same := func(a, b []Beam) bool {
		return slices.EqualFunc(a, b, func(a, b Beam) bool { return slices.Equal(a.Rows, b.Rows) && a.Score == b.Score })
	}
	if a := find(2, 1); !same(a, find(2, 1)) || same(a, find(2, 2)) || same(a, find(0, 1)) || !same(find(0, 1), find(0, 2)) {
		t.Error("noise should depend on the seed, and be none without beams.noise")
	}
}

// TestFilesRoundTrip: what is written is what our reader of the reference's formats reads.
func TestFilesRoundTrip(t *testing.T) {
	set, pool := toyRecords(9), toyPool(6)
	s := &Search{Scorer: &toy{}, Records: set, BeamsOptions: BeamsOptions{Score: "infoscore", Order: "left", Answer: "majority", Shots: 2,
		Width: 4}}
	best, _, err := s.Beams(context.Background(), 0, pool)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	legacy, rl := filepath.Join(dir, "beams.json"), filepath.Join(dir, "records.json")
	meta := map[string]any{"model": s.Scorer.Identity()}
	if err := WriteBeams(legacy, meta, []int{0}, [][]Beam{best}); err != nil {
		t.Fatal(err)
	}
	if err := WriteRecords(rl, meta, []int{0}, [][]int32{pool}, [][]Beam{best}, s.Trajectory); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(dir, "e.safetensors")
	rows := tensorfile.FromFloat32s("e", []int{set.Len(), 1}, make([]float32, set.Len()))
	if err := tensorfile.WriteSafetensors(table, []tensorfile.Tensor{rows}, nil); err != nil {
		t.Fatal(err)
	}
	for path, reward := range map[string]func(b Beam) float64{legacy: func(b Beam) float64 { return b.Score },
		rl: func(b Beam) float64 { return b.Prob }} {
		o := beamdata.DefaultOptions()
		o.Name, o.Beams, o.Embeddings, o.TrainRatio, o.Reward.Mode = "beams", &path, &table, 1, "vqa_gt_prob"
		b, err := beamdata.Load(o)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Unknown) > 0 || b.RCE.Len() != 1 || b.RCE.IDs[0] != 0 || b.RCE.NumCandidates(0) != len(best) {
			t.Fatalf("%s: %d queries, unknown keys %v", path, b.RCE.Len(), b.Unknown)
		}
		for i, want := range best {
			c := b.RCE.Candidate(0, i)
			var got []int32
			for _, at := range c.Positions {
				got = append(got, b.RCE.Pool(0)[at])
			}
			if !slices.Equal(got, want.Rows) || c.Reward != reward(want) {
				t.Errorf("%s: candidate %d is %v with %v, want %v with %v", path, i, got, c.Reward, want.Rows, reward(want))
			}
		}
	}
}

// doubter writes down what it is to ask a server again for.
type doubter struct {
	toy
	doubted []lvlm.Prompt
}

func (d *doubter) Doubt(prompts []lvlm.Prompt) error {
	d.doubted = append(d.doubted, prompts...)
	return nil
}

// At each step the last candidate that goes on and the first that does not are asked for again, with every answer that is scored.
func TestEdgesAreDoubted(t *testing.T) {
	for _, answer := range []string{"majority", "best"} {
		d := &doubter{}
		s := &Search{Scorer: d, Records: toyRecords(20), BeamsOptions: BeamsOptions{Score: "infoscore", Order: "left", Answer: answer,
			Shots: 2, Width: 3}}
		pool := []int32{3, 4, 5, 6, 7, 8}
		_, compared, err := s.Beams(t.Context(), 0, pool)
		if err != nil {
			t.Fatal(err)
		}
		answers := s.answers(s.Records.At(0))
		want := s.prompts(0, answers, compared[2:4])
		if n := len(answers); len(d.doubted) != 4*n || fmt.Sprint(d.doubted[2*n:]) != fmt.Sprint(want) || len(d.doubted[0].Shots) != 1 {
			t.Errorf("%s: %d prompts are doubted: %v, want %v at last", answer, len(d.doubted), d.doubted, want)
		}
		wide := &doubter{}
		s.Scorer, s.Width = wide, 40 // all go on
		if _, _, err := s.Beams(t.Context(), 0, pool); err != nil || wide.doubted != nil {
			t.Errorf("%d prompts are doubted where nothing is dropped, %v", len(wide.doubted), err)
		}
	}
}

// talker goes on after its answer.
type talker struct{ toy }

func (*talker) Answer(_ context.Context, prompts []lvlm.Prompt) ([]lvlm.Reply, error) {
	return slices.Repeat([]lvlm.Reply{{Text: "a big answer 0, or so\nQuestion: what else?"}}, len(prompts)), nil
}

// The search and the reward judge the part of a reply that a result file holds.
func TestRepliesAreCut(t *testing.T) {
	for score, want := range map[string]string{"vqa": "a big answer 0", "cider": "a big answer 0, or so"} {
		s := &Search{Scorer: &talker{}, Records: toyRecords(9), BeamsOptions: BeamsOptions{Score: score, Order: "left", Shots: 1, Width: 1}}
		s.Captions = References(s.Records)
		most := vqa.Accuracy(want, s.Records.At(0).Answers, false)
		if score == "cider" {
			most = s.Captions.Score(want, s.Records.At(0).Answers)
		}
		got, _, err := s.Beams(t.Context(), 0, toyPool(3))
		if err != nil || got[0].Said != want || got[0].Score != most || most == 0 {
			t.Errorf("%s: %+v, %v, want %q with %v", score, got, err, want, most)
		}
		if rewards, _, err := s.Rewards(t.Context(), []int{0}, [][]int32{{1}}); err != nil || rewards[0] != most {
			t.Errorf("%s: rewards %v, %v, want %v", score, rewards, err, most)
		}
	}
}

// Nothing of what stands between an answer and the next question is the answer's.
func TestJudgedIsTrimmed(t *testing.T) {
	if got := Judged(" red\nQuestion: what else?", false); got != "red" {
		t.Errorf("judged is %q", got)
	}
}

// A reward is of questions with answers, after examples that show one.
func TestRewardsWantAnswers(t *testing.T) {
	records := icl.TableOf(icl.Record{ID: 7, Question: "q", Answers: []string{"a"}}, icl.Record{ID: 8, Question: "r"})
	for _, score := range []string{"likelihood", "vqa"} {
		s := &Search{Scorer: &toy{}, Records: records, BeamsOptions: BeamsOptions{Score: score}}
		for q, shots := range [][]int32{{1}, {0}} {
			got, _, err := s.Rewards(t.Context(), []int{q}, [][]int32{shots})
			if err == nil || !strings.Contains(err.Error(), "record 8 has no answer") {
				t.Errorf("%s: question %d after %v: %v, %v", score, q, shots, got, err)
			}
		}
	}
}
