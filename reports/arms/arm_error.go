package arms

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// seedPart is what the seeds of one side say about other seeds.
type seedPart struct {
	seeds int
	sd    float64 // over seeds, of their means over questions
	means float64 // variance of the grand mean that differences of the seeds' means explain: sd² / S
	noise float64 // the part of it that is only the chance of each seed on each question
}

// seedPartOf splits scores [S][n] into question, seed and rest (two-way analysis of variance without
// replication). With one seed nothing is known and nothing is claimed.
func seedPartOf(scores [][]float64) seedPart {
	seeds, n := len(scores), len(scores[0])
	s := seedPart{seeds: seeds}
	if seeds < 2 {
		return s
	}
	means := list.Map(scores, stat.Mean)
	s.sd = stat.SD(means)
	s.means = s.sd * s.sd / float64(seeds)
	question, grand := overSeeds(scores), stat.Mean(means)
	var squares float64
	for i, row := range scores {
		for k, x := range row {
			r := x - question[k] - means[i] + grand
			squares += r * r
		}
	}
	s.noise = squares / float64((seeds-1)*(n-1)) / float64(seeds*n)
	return s
}

// armError is the uncertainty of a mean difference: a variance from the questions, known well from n of
// them, and one for each side from its few seeds, known badly.
//
// The interval is a generalized (fiducial) one (Weerahandi 1993; for variance components Burdick,
// Borror and Montgomery 2005): the seeds' variance is not one number but what S seeds leave possible,
// means·(S−1)/χ²(S−1) − noise, at least 0, and the tail of Student's t is averaged over it. With
// nothing but seeds to vary it is Student's interval over S seeds, without seeds that over n
// questions. Satterthwaite's degrees of freedom cover 92 % with three seeds; docs/log/statistics.md has
// the simulation.
type armError struct {
	question float64 // variance of the mean
	n        int
	sides    []seedPart
}

// armErrorOf splits the scores of two arms, whose questions are in one order, into their parts. Clusters of a count as
// one question each.
func armErrorOf(a, b Arm, bySeed bool) armError {
	g := stats.NewGrouping(a.Clusters)
	a.Scores, b.Scores = g.Rows(a.Scores), g.Rows(b.Scores)
	_, se := stat.MeanSE(stat.Less(overSeeds(a.Scores), overSeeds(b.Scores)))
	e := armError{question: se * se, n: g.Units(len(a.QueryIDs))}
	if !bySeed {
		e.sides = []seedPart{seedPartOf(a.Scores), seedPartOf(b.Scores)}
		return e
	}
	diff := list.Map(stat.Indices(len(a.Scores)), func(s int) []float64 { return stat.Less(a.Scores[s], b.Scores[s]) }) // [S][n]
	e.sides = []seedPart{seedPartOf(diff)}
	return e
}

// seeds is the smallest number of seeds of a side that has several, 0 when none has.
func (e armError) seeds() int {
	least := 0
	for _, s := range e.sides {
		if s.seeds > 1 && (least == 0 || s.seeds < least) {
			least = s.seeds
		}
	}
	return least
}

// seedVariance is the estimated variance of the mean from the seeds.
func (e armError) seedVariance() float64 {
	return stat.Sum(list.Map(e.sides, func(s seedPart) float64 { return max(0, s.means-s.noise) }))
}

// noise is the part of the variance over questions that is only the chance of each seed on each of them.
func (e armError) noise() float64 {
	return stat.Sum(list.Map(e.sides, func(s seedPart) float64 { return s.noise }))
}

// seedsAtMost is the standard error from the seeds that they leave possible with a chance of 5 %: the variance over S of them is at
// most (S−1)s²/χ²(S−1; 0.05), of which their noise is a part.
func (e armError) seedsAtMost() float64 {
	v := 0.0
	for _, s := range e.sides {
		if freedom := float64(s.seeds - 1); freedom > 0 {
			v += max(0, s.means*freedom/distuv.ChiSquared{K: freedom}.Quantile(0.05)-s.noise)
		}
	}
	return math.Sqrt(v)
}

// weighted is a possible standard error with its weight.
type weighted struct{ se, weight float64 }

// possible lists standard errors that the seeds leave possible; weights add up to 1.
func (e armError) possible() []weighted {
	out := []weighted{{e.question, 1}} // variances first
	for _, s := range e.sides {
		if s.seeds < 2 || s.means == 0 {
			continue
		}
		nodes := 400
		if len(e.sides) > 1 {
			nodes = 50
		}
		freedom := float64(s.seeds - 1)
		chi := distuv.ChiSquared{K: freedom}
		var next []weighted
		for i := range nodes {
			// Midpoints of u = v³, denser where χ² is small and the variance large: the tail decides.
			v := (float64(i) + 0.5) / float64(nodes)
			u, w := v*v*v, 3*v*v/float64(nodes)
			variance := max(0, s.means*freedom/max(chi.Quantile(u), 1e-12)-s.noise)
			for _, o := range out {
				next = append(next, weighted{o.se + variance, o.weight * w})
			}
		}
		out = next
	}
	total := stat.Sum(list.Map(out, func(o weighted) float64 { return o.weight }))
	return list.Map(out, func(o weighted) weighted { return weighted{math.Sqrt(o.se), o.weight / total} })
}

// beyond is the two-sided probability of a mean at least this far from 0 when the true one is 0.
func (e armError) beyond(distance float64) float64 { return tail(e.possible(), e.n, distance) }

func tail(possible []weighted, n int, distance float64) float64 {
	t := distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}
	p := 0.0
	for _, o := range possible {
		switch {
		case o.se > 0:
			p += o.weight * 2 * t.CDF(-distance/o.se)
		case distance == 0:
			p += o.weight
		}
	}
	return min(p, 1)
}

// halfWidth is the distance that is exceeded with probability alpha.
func (e armError) halfWidth(alpha float64) float64 {
	possible := e.possible()
	high := 0.0
	for _, o := range possible {
		high = max(high, o.se)
	}
	if high == 0 {
		return 0
	}
	for tail(possible, e.n, high) > alpha {
		high *= 2
	}
	low := 0.0
	for range 45 {
		middle := (low + high) / 2
		if tail(possible, e.n, middle) > alpha {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// maxSeedsNeeded is where counting seeds stops.
const maxSeedsNeeded = 1000

// needed returns how many questions with these seeds, and how many seeds with these questions, settle a
// mean difference of this size with the wanted power at opt.Level, which is corrected as the comparison is; 0 where no number
// does. n are the questions now, which may be more than the independent ones of e.
func (e armError) needed(mean float64, n int, opt stats.Options) (questions, seeds int) {
	if mean == 0 {
		return 0, 0
	}
	power := distuv.UnitNormal.Quantile(opt.Power)
	z := distuv.UnitNormal.Quantile(0.5+opt.Level/2) + power
	t := func(seeds int) float64 {
		return distuv.StudentsT{Sigma: 1, Nu: float64(seeds - 1)}.Quantile(0.5+opt.Level/2) + power
	}
	own, noise, now := e.seedVariance(), e.noise(), e.seeds()
	left := mean * mean
	if now > 0 {
		left -= t(now) * t(now) * own
	}
	if left > 0 && now != 2 { // of the spread over two seeds too little is known
		if wanted := math.Ceil(z * z * e.question * float64(n) / left); wanted <= 1e12 {
			questions = max(int(wanted), 2)
		}
	}
	if now == 0 {
		return questions, 0
	}
	lasting := max(0, e.question-noise)                            // what more seeds do not average away
	enough := 2 + sort.Search(maxSeedsNeeded-1, func(i int) bool { // more seeds never need more
		share := float64(now) / float64(i+2)
		return z*z*(lasting+noise*share)+t(i+2)*t(i+2)*own*share <= mean*mean
	})
	if enough > maxSeedsNeeded {
		return questions, 0
	}
	return questions, enough
}

// bestOf says where the best checkpoints of all runs come from, where that is one phase; "" elsewhere.
func bestOf(runs []*record.Run) string {
	phases := list.Unique(list.Map(runs, func(run *record.Run) string {
		if s := run.Summary; s != nil && s.Best != nil {
			return s.Best.Phase
		}
		return ""
	}))
	switch {
	case len(phases) > 1 || phases[0] == "":
		return ""
	case phases[0] == record.PolicyInit:
		return ": the best checkpoint of every run is the policy that it began with"
	}
	return ": the best checkpoint of every run is of " + page.Plain(phases[0])
}
