// Package arms compares runs that differ in nothing but their seed, arms, with each other and with baselines, for new questions and new
// seeds both.
//
//	tables := arms.ArmTables(arms.ArmsOf(runs), nil, 0)
package arms

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// Arm is one setting of a study: the scores of every seed on the same questions.
type Arm struct {
	Name     string      // for sentences and errors
	Metric   string      // what the scores are
	Seeds    []int64     // [S], ascending
	QueryIDs []int64     // [n]
	Scores   [][]float64 // [S][n]
	Clusters []int64     // [n] as Evaluation.Clusters; nil: each question stands alone
	// ChosenFrom is the most checkpoints that a seed's policy was chosen from by these scores; 0: none was.
	ChosenFrom int
	Look       stats.Look  // the last of its seeds' looks at these questions
	Range      *[2]float64 // as Evaluation.Range
}

// evaluation is the arm's scores averaged over seeds.
func (a Arm) evaluation() record.Evaluation {
	return record.Evaluation{Metric: a.Metric, Range: a.Range, Scores: a.QueryScores(), Clusters: a.Clusters}
}

// ArmOf collects the scores of runs that differ in nothing but their seed: on a split, by a metric, of
// a policy as evals.jsonl names it, "" for what each run ended with (its best policy, or its last
// phase). Every run must have scored the same questions, and no seed may come twice.
func ArmOf(runs []*record.Run, split, metric, policy string) (Arm, error) {
	arm := Arm{Metric: metric}
	if len(runs) == 0 {
		return arm, errors.New("an arm without runs: want at least one")
	}
	type seeded struct {
		dir  string
		seed int64
		eval record.Evaluation
	}
	var found []seeded
	for _, run := range runs {
		seed, ok := run.SettingNumber("seed")
		if !ok && len(runs) > 1 {
			return arm, fmt.Errorf("%s: its config names no seed", run.Dir)
		}
		e, err := results.EvaluationOf(run, split, metric, policy)
		if err != nil {
			return arm, err
		}
		found = append(found, seeded{run.Dir, int64(seed), e})
	}
	slices.SortStableFunc(found, func(a, b seeded) int { return cmp.Compare(a.seed, b.seed) })
	first := found[0]
	arm.QueryIDs, arm.Range = first.eval.QueryIDs, first.eval.Range
	for _, f := range found {
		if arm.Clusters == nil {
			arm.Clusters = results.ClustersOf(first.eval, f.eval)
		}
		arm.ChosenFrom, arm.Look = max(arm.ChosenFrom, f.eval.ChosenFrom), arm.Look.Later(f.eval.Look)
	}
	for i, f := range found {
		if i > 0 && f.seed == found[i-1].seed {
			return arm, fmt.Errorf("%s and %s have one seed (%d): want each seed once", found[i-1].dir, f.dir, f.seed)
		}
		_, scores, err := results.PairScores(first.eval, f.eval) // in the order of the first
		if err != nil {
			return arm, fmt.Errorf("%s and %s: %w", first.dir, f.dir, err)
		}
		arm.Seeds, arm.Scores = append(arm.Seeds, f.seed), append(arm.Scores, scores)
	}
	return arm, nil
}

// ArmComparison compares two arms on the same questions, by scores averaged over seeds. The interval covers the mean
// difference for new questions and new seeds both.
type ArmComparison struct {
	stats.Paired           // SE and SD are over questions; Questions are those needed with as many seeds
	Seeds        int       // of this arm
	SeedsOf      int       // of the reference
	BySeed       bool      // both arms have the same seeds: differences were taken seed by seed
	PerSeed      []float64 // [S] mean difference of each seed, where BySeed
	SeedSE       float64   // of the mean: what new seeds would change on any questions
	SeedSD       float64   // over seeds, of mean differences; 0 with one seed
	SeedsNeeded  int       // with as many questions; 0: none would settle a difference of this size

	uncertainty armError // of the mean difference
}

// Against compares the arm with a reference that answered the same questions. Arms with the same seeds
// are compared seed by seed: runs of one seed share their data order and often their first stages.
// Arms of one seed each say nothing about other seeds: their interval is that of ComparePaired.
func (a Arm) Against(reference Arm, opt stats.Options) (ArmComparison, error) {
	c, err := a.unsettled(reference, opt)
	if err == nil {
		HolmArms([]*ArmComparison{&c})
	}
	return c, err
}

// unsettled is Against for a comparison that is settled with others: its interval, which takes resampling, and verdict are missing.
func (a Arm) unsettled(reference Arm, opt stats.Options) (ArmComparison, error) {
	var none ArmComparison
	b, err := reference.inOrderOf(a)
	if err != nil {
		return none, err
	}
	n := len(a.QueryIDs)
	if len(a.Scores) == 0 || len(b.Scores) == 0 || n < 2 {
		return none, fmt.Errorf("comparison of arms: %d and %d seeds on %d questions: want at least one seed and two questions",
			len(a.Scores), len(b.Scores), n)
	}
	if a.Clusters == nil {
		a.Clusters = b.Clusters
	}
	opt.Most = record.Most(a.evaluation(), b.evaluation())
	paired, err := stats.DifferenceOf(overSeeds(a.Scores), overSeeds(b.Scores), a.Clusters, opt)
	if err != nil {
		return none, err
	}
	c := ArmComparison{Paired: paired, Seeds: len(a.Scores), SeedsOf: len(b.Scores), BySeed: slices.Equal(a.Seeds, b.Seeds)}
	c.ChosenFrom, c.Look = max(a.ChosenFrom, b.ChosenFrom), a.Look.With(b.Look)
	if c.BySeed {
		c.PerSeed = list.Make(len(a.Scores), func(s int) float64 { return stat.Mean(stat.Less(a.Scores[s], b.Scores[s])) })
	}
	e := armErrorOf(a, b, c.BySeed)
	c.uncertainty = e
	c.SeedSE = math.Sqrt(e.seedVariance())
	for _, s := range e.sides {
		c.SeedSD = math.Hypot(c.SeedSD, s.sd)
	}
	if e.seeds() == 0 {
		c.Flip(c.Tests())
	} else {
		c.P = e.beyond(math.Abs(c.Mean))
	}
	return c, nil
}

// inOrderOf returns the arm with its questions in the order of another's.
func (a Arm) inOrderOf(other Arm) (Arm, error) {
	out := a
	out.Scores = make([][]float64, len(a.Scores))
	for s, scores := range a.Scores {
		e := record.Evaluation{Policy: cmp.Or(other.Name, "an arm"), Metric: a.Metric, QueryIDs: other.QueryIDs,
			Scores: other.QueryScores()}
		var err error
		if _, out.Scores[s], err = results.PairScores(e, record.Evaluation{Policy: cmp.Or(a.Name, "another"), QueryIDs: a.QueryIDs,
			Scores: scores}); err != nil {
			return a, err
		}
	}
	out.QueryIDs = other.QueryIDs
	if a.Clusters != nil {
		out.Clusters = results.InOrder(a.QueryIDs, a.Clusters, other.QueryIDs)
	}
	return out, nil
}

// QueryScores are the scores averaged over seeds, [n].
func (a Arm) QueryScores() []float64 { return overSeeds(a.Scores) }

// overSeeds averages scores [S][n] over S.
func overSeeds(scores [][]float64) []float64 {
	if len(scores) == 0 {
		return nil
	}
	mean := make([]float64, len(scores[0]))
	for _, row := range scores {
		for i, x := range row {
			mean[i] += x / float64(len(scores))
		}
	}
	return mean
}

// differs says whether another arm of the name has another mean by a seed that both have, or by any, where no seed has a part in it.
func (a Arm) differs(other Arm) bool {
	return a.Name == other.Name && slices.ContainsFunc(stat.Indices(len(a.Seeds)), func(i int) bool {
		at := slices.Index(other.Seeds, a.Seeds[i])
		if at < 0 && slices.Contains([]string{record.PolicySimilarity, record.PolicyMajority, record.PolicyOracle}, a.Name) {
			at = 0
		}
		return at >= 0 && math.Abs(stat.Mean(other.Scores[at])-stat.Mean(a.Scores[i])) > 1e-9
	})
}

// SeedMeans returns the mean over questions of each seed, [S].
func (a Arm) SeedMeans() []float64 { return list.Map(a.Scores, stat.Mean) }

// HolmArms corrects comparisons that are read together for their number and for the checkpoints that their sides were
// chosen from, takes the intervals at the level that this leaves, and sets the verdicts.
func HolmArms(family []*ArmComparison) { holmArms(family, len(family)) }

// holmArms is HolmArms for some of size comparisons: those that a choice made, whether they are shown or not.
func holmArms(family []*ArmComparison, size int) {
	paired := list.Map(family, func(c *ArmComparison) *stats.Paired { return &c.Paired })
	stats.SettleAmong(paired, size, func(i int, opt stats.Options) *stats.Interval {
		c := family[i]
		c.Questions, c.SeedsNeeded = c.uncertainty.needed(c.Mean, c.N, opt)
		if c.uncertainty.seeds() == 0 {
			return nil
		}
		half := c.uncertainty.halfWidth(1 - opt.Level)
		return &stats.Interval{Low: c.Mean - half, High: c.Mean + half}
	})
}

// Sentence says the verdict with its numbers; what and against name the arms, metric the score.
func (c ArmComparison) Sentence(what, against, metric string) string {
	if c.Changed == 0 {
		return fmt.Sprintf("%s and %s score the same on every one of %s", what, against, page.Plural(c.N, "question"))
	}
	mean, low, high := c.Texts()
	numbers := fmt.Sprintf("%s %s per question, %s%% interval %s to %s, %s, %s, p %s%s", mean, metric, page.Sig(100*c.Level, 2), low, high,
		stats.QuestionWords(c.N, c.Clusters), c.seedWords(), c.PWords(), c.Remarks())
	if c.Verdict != stats.NotSeparable {
		return fmt.Sprintf("%s is %s than %s: %s", what, c.Verdict, against, numbers)
	}
	text := fmt.Sprintf("%s is not separable from %s: %s", what, against, numbers)
	var ways []string
	staged := c.Stage.N > 0 // what it takes at the level of so early a stage is no guide: the stages to come have more
	if !staged && c.Questions > c.N {
		ways = append(ways, page.Plural(stats.RoundUp(c.Questions), "question"))
	}
	if n := min(c.Seeds, c.SeedsOf); !staged && n > 2 && c.SeedsNeeded > n {
		ways = append(ways, page.Plural(stats.RoundUp(c.SeedsNeeded), "seed"))
	}
	if len(ways) > 0 {
		text += fmt.Sprintf("; a difference of this size would take about %s to settle", strings.Join(ways, " or "))
	}
	return text
}

func (c ArmComparison) seedWords() string {
	switch {
	case c.Seeds == 1 && c.SeedsOf == 1:
		return "one seed"
	case c.Seeds == c.SeedsOf:
		return page.Plural(c.Seeds, "seed")
	}
	return fmt.Sprintf("%d against %s", c.Seeds, page.Plural(c.SeedsOf, "seed"))
}

// Interval is the 95 % interval of an arm's mean score, for new questions and new seeds both; nil with one
// question or cluster.
func (a Arm) Interval() *stats.Interval {
	if stats.NewGrouping(a.Clusters).Units(len(a.QueryIDs)) < 2 {
		return nil
	}
	nothing := Arm{QueryIDs: a.QueryIDs, Scores: list.Make(len(a.Scores), func(int) []float64 { return make([]float64, len(a.QueryIDs)) })}
	mean, half := stat.Mean(a.QueryScores()), armErrorOf(a, nothing, true).halfWidth(0.05)
	least, greatest := a.evaluation().Bounds()
	interval, _ := stats.Interval{Low: mean - half, High: mean + half}.Within(least, greatest)
	return &interval
}

// keyOf finds the keys of settings, as in grpo.lr=1e-4.
var keyOf = regexp.MustCompile(`[\w./@+~-]+=`)

// ShortNames cuts the keys in names of settings to their last words, where these tell the keys apart: lr=1e-4.
func ShortNames(names []string) []string {
	last := func(key string) string { return key[strings.LastIndexAny(key, "./@+~")+1:] }
	full := map[string]string{}
	for _, key := range keyOf.FindAllString(strings.Join(names, " "), -1) {
		if known, ok := full[last(key)]; ok && known != key {
			return names
		}
		full[last(key)] = key
	}
	return list.Map(names, func(name string) string { return keyOf.ReplaceAllStringFunc(name, last) })
}
