package beamdata

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/rewardutil/recorded"
)

// Differences between two selection rules on the questions of the OK-VQA reward tables are what the
// statistics of package reports are simulated with. They stand there as counts of thousandths, with no
// question, answer or id; -update counts them anew.
func TestScoreDifferencesOfTheRewardTable(t *testing.T) {
	b := loadOKVQA(t, keepHeldOut)
	rng := rand.New(rand.NewPCG(2026, 6))
	near := &nearness{cosines: map[*Set][][]float64{}}
	lines := []string{}
	for _, tc := range []struct {
		name          string
		this, against func(*Set, int) []int32
	}{
		{"two rules that differ on few questions", near.with(rng, 0.01), near.with(rng, 0.01)},
		{"two rules that differ on a third of the questions", near.with(rng, 0.02), near.with(rng, 0.02)},
		{"two random choices", randomPair(rng), randomPair(rng)},
		{"similarity against a random choice", near.with(rng, 0), randomPair(rng)},
		{"a rule that gained a little", near.betterAtTimes(rng, 0.1), near.with(rng, 0.02)},
	} {
		reward, accuracy := map[int]int{}, map[int]int{}
		for _, s := range []*Set{b.Online, b.Val, b.Eval} {
			for i := range s.Len() {
				for range 3 {
					r1, a1 := s.Scorer.Score(i, tc.this(s, i))
					r2, a2 := s.Scorer.Score(i, tc.against(s, i))
					reward[int(math.Round(1000*(r1-r2)))]++
					accuracy[int(math.Round(1000*(a1-a2)))]++
				}
			}
		}
		for _, of := range []struct {
			metric string
			counts map[int]int
		}{{"reward", reward}, {"accuracy", accuracy}} {
			var pairs []string
			for _, v := range slices.Sorted(maps.Keys(of.counts)) {
				pairs = append(pairs, fmt.Sprintf("[%d,%d]", v, of.counts[v]))
			}
			lines = append(lines, fmt.Sprintf("{\"name\": %q, \"metric\": %q, \"thousandths_and_counts\": [%s]}", tc.name, of.metric,
				strings.Join(pairs, ",")))
		}
	}
	golden.File(t, filepath.Join("..", "reports", "stats", "testdata", "differences.json"), []byte("[\n"+strings.Join(lines, ",\n")+
		"\n]\n"))
}

// nearness keeps the cosines of a set's queries with their candidates, [Q][K].
type nearness struct{ cosines map[*Set][][]float64 }

func (c *nearness) of(s *Set, i int) []float64 {
	if c.cosines[s] == nil {
		c.cosines[s] = make([][]float64, s.Len())
	}
	if c.cosines[s][i] == nil {
		query := s.Table.Row(int(s.Row(i)))
		for _, row := range s.Pool(i) {
			c.cosines[s][i] = append(c.cosines[s][i], recorded.Cosine(query, s.Table.Row(int(row))))
		}
	}
	return c.cosines[s][i]
}

// with chooses the two candidates of highest cosine, each with its own chance added.
func (c *nearness) with(rng *rand.Rand, noise float64) func(*Set, int) []int32 {
	return func(s *Set, i int) []int32 {
		score := slices.Clone(c.of(s, i))
		order := make([]int32, len(score))
		for k := range order {
			order[k] = int32(k)
			score[k] += noise * rng.NormFloat64()
		}
		slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(score[b], score[a]) })
		return order[:2]
	}
}

func randomPair(rng *rand.Rand) func(*Set, int) []int32 {
	return func(s *Set, i int) []int32 { return draw(rng.IntN, s.PoolSize(i), 2) }
}

// betterAtTimes takes, on a share of the questions, the better of two choices.
func (c *nearness) betterAtTimes(rng *rand.Rand, share float64) func(*Set, int) []int32 {
	choose := c.with(rng, 0.02)
	return func(s *Set, i int) []int32 {
		pair := choose(s, i)
		if rng.Float64() < share {
			if other := choose(s, i); Reward(s.Scorer, i, other) > Reward(s.Scorer, i, pair) {
				return other
			}
		}
		return pair
	}
}
