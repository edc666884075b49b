package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sort"
	"sync"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/page"
)

// Population is what the differences of a simulated comparison are drawn from.
type Population struct {
	Name string
	Mean float64
	Draw func(*rand.Rand) float64
}

// counted draws from values with weights.
func counted(name string, values, weights []float64) Population {
	total, mean := 0.0, 0.0
	upTo := make([]float64, len(values))
	for i, w := range weights {
		total += w
		upTo[i] = total
		mean += w * values[i]
	}
	return Population{name, mean / total, func(rng *rand.Rand) float64 {
		return values[min(sort.SearchFloat64s(upTo, total*rng.Float64()), len(values)-1)]
	}}
}

// tilted returns weights under which the values have mean 0: each times exp(λ·value), the least change
// (in Kullback-Leibler divergence) that makes a true null hypothesis of a population and keeps its shape.
func tilted(values, weights []float64) []float64 {
	at := func(lambda float64) (out []float64, mean float64) {
		total := 0.0
		for i, v := range values {
			out = append(out, weights[i]*math.Exp(lambda*v))
			total, mean = total+out[i], mean+out[i]*v
		}
		return out, mean / total
	}
	low, high := -100.0, 100.0
	for range 200 {
		if _, mean := at((low + high) / 2); mean > 0 {
			high = (low + high) / 2
		} else {
			low = (low + high) / 2
		}
	}
	out, _ := at(low)
	return out
}

// Populations are the differences of selection rules on the OK-VQA reward table (testdata, counted by a
// test of package beamdata), each as it is and with a true mean of 0, and normal ones.
func Populations(t *testing.T) []Population {
	var counts []struct {
		Name   string       `json:"name"`
		Metric string       `json:"metric"`
		Pairs  [][2]float64 `json:"thousandths_and_counts"`
	}
	golden.JSON(t, filepath.Join("testdata", "differences.json"), &counts)
	out := []Population{
		{"normal, no difference", 0, (*rand.Rand).NormFloat64},
		{"normal, a difference of 0.05 sd", 0.05, func(rng *rand.Rand) float64 { return rng.NormFloat64() + 0.05 }},
	}
	for _, c := range counts {
		var values, weights []float64
		for _, p := range c.Pairs {
			values, weights = append(values, p[0]/1000), append(weights, p[1])
		}
		name := c.Name + ", " + c.Metric
		out = append(out, counted(name, values, weights), counted(name+", no difference", values, tilted(values, weights)))
		out[len(out)-1].Mean = 0
	}
	return out
}

// tally is what became of simulated comparisons.
type tally struct {
	sims, above, below, winners int // intervals above the truth and below it; verdicts that name a winner
	bca                         int // BCa intervals that hold the truth, of the first bcaSims
	bcaSims                     int
}

func (a tally) covers() float64 { return 1 - float64(a.above+a.below)/float64(a.sims) }

// simulate makes comparisons of n questions as a report does. Comparison i depends on seed and i alone.
func simulate(p Population, seed uint64, n, sims, bcaSims int) tally {
	var total tally
	var mu sync.Mutex
	var workers sync.WaitGroup
	next := 0
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			scores, zeros := make([]float64, n), make([]float64, n)
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= sims {
					return
				}
				rng := rand.New(rand.NewPCG(uint64(i), seed))
				for k := range scores {
					scores[k] = p.Draw(rng)
				}
				c, err := DifferenceOf(scores, zeros, nil, DefaultOptions())
				if err != nil {
					panic(err)
				}
				named := p.Mean == 0 && Names(&c)
				if i < bcaSims && c.BCa == (Interval{}) {
					c.BCa = BootstrapBCa(c.Values, DefaultOptions())
				}
				mu.Lock()
				total.sims++
				total.above += BoolInt(p.Mean < c.Interval.Low)
				total.below += BoolInt(p.Mean > c.Interval.High)
				total.winners += BoolInt(named)
				if i < bcaSims {
					total.bcaSims++
					total.bca += BoolInt(!c.BCa.Excludes(p.Mean))
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return total
}

// Names says whether a comparison names a winner as a report does. That takes three tests; what is slow waits for what
// is not.
func Names(c *Paired) bool {
	tests := c.Tests()
	if !StudentInterval(c.Mean, c.SE, len(c.Values), 1-0.05/tests).Excludes(0) {
		return false
	}
	if c.Flip(tests); c.P*tests >= 0.05 {
		return false
	}
	Settle([]*Paired{c})
	return c.Verdict != NotSeparable
}

// On 1,000 questions the tool names a false winner in at most 5 % of comparisons of equal policies, and its
// intervals cover between 94 and 96 %: on differences of selection rules, most of them 0 and a few large, and on
// normal ones. In full size 10,000 comparisons each; the small size allows for its own chance.
//
//	go test ./reports -run Simulated -v      prints the table of docs/log/statistics.md
func TestSimulatedComparisonsAreHonest(t *testing.T) {
	sims, bca := 10_000, 500
	if testing.Short() {
		sims, bca = 300, 0
	}
	for _, n := range []int{1000, 100} {
		for k, p := range Populations(t) {
			withBCa := bca * BoolInt(p.Mean == 0 && (n == 100 || k == 3)) // it is slow
			a := simulate(p, uint64(100*n+k), n, sims, withBCa)
			line := fmt.Sprintf("| %s | %s | %.1f %% | %.1f %% | %.1f %% | ", p.Name, page.Thousands(n), 100*a.covers(),
				100*float64(a.above)/float64(sims), 100*float64(a.below)/float64(sims))
			if p.Mean == 0 {
				line += fmt.Sprintf("%.1f %%", 100*float64(a.winners)/float64(sims))
			} else {
				line += "–"
			}
			if withBCa > 0 {
				line += fmt.Sprintf(" | %.1f %%", 100*float64(a.bca)/float64(a.bcaSims))
			}
			t.Log(line + " |")
			slack := 0.0 // four standard errors in the small size, none in the full one
			if testing.Short() {
				slack = 4 * math.Sqrt(0.05*0.95/float64(sims))
			}
			limit := 0.05 // on 100 questions strong skew is not averaged away
			if n < 1000 {
				limit = 0.07
			}
			if p.Mean == 0 && float64(a.winners)/float64(sims) > limit+slack {
				t.Errorf("%s, %d questions: %.2f %% false winners", p.Name, n, 100*float64(a.winners)/float64(sims))
			}
			if n == 1000 && (a.covers() < 0.94-slack || a.covers() > 0.96+slack) {
				t.Errorf("%s, %d questions: 95 %% intervals cover %.2f %%", p.Name, n, 100*a.covers())
			}
		}
	}
}
