package results

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// Yardstick is a policy that the others of its table are compared with.
type Yardstick struct {
	Policy string
	Short  string                                   // over a column: over SHORT
	Long   string                                   // in a sentence: is better than LONG
	Gain   func(*record.StageResult) **stats.Paired // where a line keeps the comparison
}

// Yardsticks are all of them, the initial policy last.
func Yardsticks() []Yardstick {
	return []Yardstick{
		{record.PolicySimilarity, "similarity", "similarity", func(r *record.StageResult) **stats.Paired { return &r.OverSimilarity }},
		{record.PolicyMajority, "majority", "the majority answer", func(r *record.StageResult) **stats.Paired { return &r.OverMajority }},
		{record.PolicyRandom, "random", "drawing at random", func(r *record.StageResult) **stats.Paired { return &r.OverRandom }},
		{record.PolicyRecorded, "recorded order", "the recorded order",
			func(r *record.StageResult) **stats.Paired { return &r.OverRecorded }},
		{record.PolicyInit, "initial policy", "the initial policy", func(r *record.StageResult) **stats.Paired { return &r.OverInit }},
	}
}

// YardsticksBy are Yardsticks in the order in which those are asked for that similarity has scored, or has not. Without it the policy is a
// pretrained one, whose first question is what training changed; a selector knows nothing before it.
func YardsticksBy(similarity bool) []Yardstick {
	yards := Yardsticks()
	if n := len(yards); !similarity {
		yards = slices.Insert(yards[:n-1], 0, yards[n-1])
	}
	return yards
}

// YardsticksOf are those that a table shows, the first first, of those that it holds or its lines were compared with. A gain over a
// baseline that is worse than drawing at random says little: random takes its place, and stands beside an initial policy that is worse.
// Elsewhere a sentence has the gain over random. An order of recorded candidates that lists the best first, as the tables of all stages
// show, is an oracle's.
func YardsticksOf(table, stages []record.StageResult) []Yardstick {
	weak, oracle := BelowRandom(table), ListsBestFirst(stages)
	similarity := slices.ContainsFunc(table, func(r record.StageResult) bool {
		return r.Policy == record.PolicySimilarity || r.OverSimilarity != nil
	})
	return slices.DeleteFunc(YardsticksBy(similarity), func(y Yardstick) bool {
		if !slices.ContainsFunc(table, func(r record.StageResult) bool { return r.Policy == y.Policy || *y.Gain(&r) != nil }) {
			return true
		}
		switch y.Policy {
		case record.PolicyRandom:
			return len(weak) == 0
		case record.PolicyRecorded:
			if oracle {
				return true
			}
		}
		return y.Policy != record.PolicyInit && slices.ContainsFunc(weak, func(r record.StageResult) bool { return r.Policy == y.Policy })
	})
}

// SameTable reports whether two lines stand in the same table: they are of one split, metric and number of shots.
func SameTable(a, b record.StageResult) bool {
	return a.Split == b.Split && a.Metric == b.Metric && a.Shots == b.Shots
}

// TableOf are the lines on the split and by the metric of one of them.
func TableOf(stages []record.StageResult, of record.StageResult) []record.StageResult {
	return slices.DeleteFunc(slices.Clone(stages), func(r record.StageResult) bool { return !SameTable(r, of) })
}

// WithoutTwins leaves out the lines of phases whose policy is the best one, which has a line.
func WithoutTwins(table []record.StageResult) []record.StageResult {
	return list.Filter(table, func(r record.StageResult) bool {
		return r.Policy != r.Phase || !slices.ContainsFunc(table, func(b record.StageResult) bool {
			return b.Policy == record.PolicyBest && b.Phase == r.Phase && b.Epoch == r.Epoch
		})
	})
}

// BelowRandom are the baselines of a table, the initial policy among them, that are worse than drawing at random.
func BelowRandom(table []record.StageResult) []record.StageResult {
	return slices.DeleteFunc(slices.Clone(table), func(r record.StageResult) bool {
		return Trained(r.Policy) || r.OverRandom == nil || r.OverRandom.Verdict != stats.Worse
	})
}

// WarnBelowRandom warns of the baselines of a table that are worse than drawing at random; "" where none is.
func WarnBelowRandom(table []record.StageResult) string {
	var names, means []string
	weak := BelowRandom(table)
	if len(weak) == 0 {
		return ""
	}
	for _, r := range weak {
		name := r.Title()
		if r.Policy == record.PolicyInit || r.Policy == record.PolicyRecorded {
			name = "the " + name
		}
		names, means = append(names, name), append(means, page.Score(r.Mean, r.SE))
	}
	return fmt.Sprintf("%s %s worse than drawing at random here: %s against %s. A gain over %s says little.",
		page.Capital(page.Joined(names)), page.Verb(len(weak), "is", "are"), page.Joined(means),
		page.Score(weak[0].Mean-weak[0].OverRandom.Mean, weak[0].SE), page.Verb(len(weak), "it", "them"))
}

// BetterThanInit names the last phase of the tables that is better than the initial policy although that is the best, in a sentence
// without its stop; "" where none is.
func BetterThanInit(stages []record.StageResult) string {
	still := func(r record.StageResult) bool { return r.Policy == record.PolicyBest && r.Phase == record.PolicyInit }
	for _, r := range slices.Backward(stages) {
		if StageRank(r.Policy) == rankPhase && r.OverInit != nil && r.OverInit.Verdict == stats.Better && slices.ContainsFunc(stages, still) {
			return "on " + r.Split + " " + r.OverInit.Sentence(r.Subject(), "the initial policy", MetricName(r.Metric))
		}
	}
	return ""
}

// BehindBest says in a sentence without its stop that the last phase ended worse than the best policy, in the table of a line; "" where
// it did not, or where the two cannot be compared.
func BehindBest(evals []record.Evaluation, of record.StageResult, opt stats.Options) string {
	for _, table := range StageTables(evals) {
		best, last := -1, -1
		for i, e := range table {
			switch StageRank(e.Policy) {
			case rankPhase:
				last = i
			case rankBest:
				best = i
			}
		}
		if !SameTable(lineOf(table[0]), of) || min(best, last) < 0 || !comparable(table[last], table[best]) {
			continue
		}
		paired, err := CompareEvaluations(table[last], table[best], opt)
		if err != nil {
			return ""
		}
		if stats.Settle([]*stats.Paired{&paired}); paired.Verdict == stats.Worse {
			return paired.Sentence(lineOf(table[last]).Subject(), lineOf(table[best]).Subject(), MetricName(of.Metric))
		}
	}
	return ""
}

// Stages compares the last evaluation of every policy. Lines come by split (val first) and metric
// (reward first), then random, similarity, majority, recorded order, init, the phases in order, best, best beam, oracle, reference.
//
// The comparison of best (without one: of the last phase) is the planned one and stands alone; those
// of the phases are corrected for their number (Holm) within split, metric and reference. A policy that was chosen on the very
// questions it is compared on is corrected for the checkpoints that competed. Equal scores have one interval and one verdict.
func Stages(evals []record.Evaluation, opt stats.Options) ([]record.StageResult, error) {
	results := []record.StageResult{}
	for _, table := range StageTables(evals) {
		rows, err := compareStages(table, opt)
		if err != nil {
			return nil, err
		}
		results = append(results, rows...)
	}
	return results, nil
}

// JudgeError is an evaluation whose mean or standard error is not finite.
type JudgeError struct {
	Policy, Split, Metric string
	Mean, SE              float64
}

func (e *JudgeError) Error() string {
	return fmt.Sprintf("the evaluation of %s on %s has a mean %s of %v ± %v, want finite numbers: its scores (%s) are too large",
		e.Policy, e.Split, e.Metric, e.Mean, e.SE, record.EvalsFile)
}

// StageTables groups evaluations by split, metric and shots, and orders each group. Equal scores of a group are corrected alike, as the
// strictest of them: for what was chosen from most checkpoints, and for the latest look.
func StageTables(evals []record.Evaluation) [][]record.Evaluation {
	return list.Map(asRecorded(evals), func(table []record.Evaluation) []record.Evaluation {
		own := slices.Clone(table)
		for i := range table {
			for _, o := range own {
				if sameScores(table[i], o) {
					table[i].ChosenFrom, table[i].Look = max(table[i].ChosenFrom, o.ChosenFrom), table[i].Look.Later(o.Look)
				}
			}
		}
		return table
	})
}

// asRecorded is StageTables with the corrections of each policy alone.
func asRecorded(evals []record.Evaluation) [][]record.Evaluation {
	type key struct {
		split, metric string
		shots         int
	}
	var keys []key
	groups := map[key][]record.Evaluation{}
	for _, e := range evals {
		if len(e.Scores) == 0 {
			continue
		}
		k := key{e.Split, e.Metric, e.Shots}
		if groups[k] == nil {
			keys = append(keys, k)
		}
		same := func(o record.Evaluation) bool { return o.Policy == e.Policy }
		groups[k] = append(slices.DeleteFunc(groups[k], same), e) // the last one of a policy counts
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(stats.BoolInt(a.split != "val")-stats.BoolInt(b.split != "val"),
			stats.BoolInt(a.metric != "reward")-stats.BoolInt(b.metric != "reward"), cmp.Compare(a.shots, b.shots))
	})
	return list.Map(keys, func(k key) []record.Evaluation {
		table := groups[k]
		slices.SortStableFunc(table, func(a, b record.Evaluation) int { return StageRank(a.Policy) - StageRank(b.Policy) })
		return table
	})
}

// Ranks of policies in a table.
const (
	rankBaseline = iota // below everything: random
	RankYardstick
	rankInit
	rankPhase // in the order in which they ended
	rankBest
	rankBeam
	rankBound // what no policy is expected to pass
)

func StageRank(policy string) int {
	switch policy {
	case record.PolicyRandom:
		return rankBaseline
	case record.PolicySimilarity, record.PolicyMajority, record.PolicyRecorded:
		return RankYardstick
	case record.PolicyInit:
		return rankInit
	case record.PolicyBest:
		return rankBest
	case record.PolicyBestBeam:
		return rankBeam
	case record.PolicyOracle, record.PolicyReference:
		return rankBound
	}
	return rankPhase
}

// Trained says whether a policy came out of the run's phases.
func Trained(policy string) bool { r := StageRank(policy); return r == rankPhase || r == rankBest }

// lineOf returns the line of an evaluation in its table, without mean and comparisons.
func lineOf(e record.Evaluation) record.StageResult {
	return record.StageResult{Split: e.Split, Metric: e.Metric, Policy: e.Policy, Phase: e.Phase, Epoch: e.Epoch, Shots: e.Shots,
		Queries: len(e.Scores)}
}

func compareStages(table []record.Evaluation, opt stats.Options) ([]record.StageResult, error) {
	rows := make([]record.StageResult, len(table))
	for i, e := range table {
		rows[i] = lineOf(e)
		rows[i].Mean, rows[i].SE = e.MeanSE()
		if total := rows[i].Mean + rows[i].SE; math.IsNaN(total) || math.IsInf(total, 0) {
			return nil, &JudgeError{e.Policy, e.Split, e.Metric, rows[i].Mean, rows[i].SE}
		}
	}
	planned := PlannedStage(table)
	type placed struct {
		Yardstick
		at int // line of the table
	}
	var made []placed
	for _, y := range Yardsticks() {
		ref := slices.IndexFunc(table, func(e record.Evaluation) bool { return e.Policy == y.Policy })
		if ref < 0 {
			continue
		}
		// A policy may start as similarity: then it is the same comparison.
		twin := slices.IndexFunc(made, func(m placed) bool { return sameScores(table[m.at], table[ref]) })
		var phases []*stats.Paired
		size := 0 // of their family, which the schedule fixes
		for i := range table {
			if i == ref || !comparable(table[i], table[ref]) || y.Policy == record.PolicyRandom && i != planned && !asked(rows[:i+1]) {
				continue
			}
			if twin >= 0 && *made[twin].Gain(&rows[i]) != nil {
				again := **made[twin].Gain(&rows[i])
				*y.Gain(&rows[i]) = &again
				continue
			}
			paired, err := CompareEvaluations(table[i], table[ref], opt)
			if err != nil {
				return nil, err
			}
			*y.Gain(&rows[i]) = &paired
			phase := i != planned && StageRank(table[i].Policy) == rankPhase
			size += stats.BoolInt(phase)
			if phase && !sameScores(table[i], table[planned]) {
				phases = append(phases, &paired)
			} else {
				stats.Settle([]*stats.Paired{&paired})
			}
		}
		stats.SettleAmong(phases, size, nil)
		for i := range table[:max(planned, 0)] { // the initial policy with the scores of a phase
			same := slices.IndexFunc(table, func(e record.Evaluation) bool { return StageRank(e.Policy) == rankPhase && sameScores(e, table[i]) })
			if gain := *y.Gain(&rows[i]); gain != nil && same >= 0 && *y.Gain(&rows[same]) != nil {
				*gain = **y.Gain(&rows[same])
			}
		}
		made = append(made, placed{y, ref})
	}
	return rows, comparePhases(rows, table, opt)
}

// comparePhases compares each phase of a table with the one before it.
func comparePhases(rows []record.StageResult, table []record.Evaluation, opt stats.Options) error {
	before := -1
	var made []*stats.Paired
	for i := range table {
		if StageRank(table[i].Policy) != rankPhase {
			continue
		}
		if before >= 0 && comparable(table[i], table[before]) {
			paired, err := CompareEvaluations(table[i], table[before], opt)
			if err != nil {
				return err
			}
			rows[i].OverPrevious = &paired
			made = append(made, &paired)
		}
		before = i
	}
	stats.Settle(made)
	return nil
}

// asked reports whether the last of a table's lines so far is to be compared with random: a baseline is, and what was trained where
// random takes the place of one.
func asked(rows []record.StageResult) bool {
	switch StageRank(rows[len(rows)-1].Policy) {
	case RankYardstick, rankInit:
		return true
	case rankPhase, rankBest:
		return len(BelowRandom(rows)) > 0
	}
	return false
}

func sameScores(a, b record.Evaluation) bool {
	return slices.Equal(a.QueryIDs, b.QueryIDs) && slices.Equal(a.Scores, b.Scores)
}

// PlannedStage is best, or else the last phase; -1 without either.
func PlannedStage(table []record.Evaluation) int {
	planned := -1
	for i, e := range table {
		if Trained(e.Policy) {
			planned = i
		}
	}
	return planned
}

// comparable says whether two evaluations have the questions, and the clusters, that an interval takes.
func comparable(e, reference record.Evaluation) bool {
	return stats.NewGrouping(ClustersOf(e, reference)).Units(len(e.Scores)) > 1
}

// CompareEvaluations pairs two evaluations by query id, without settling the verdict. Both must hold the same queries.
func CompareEvaluations(e, reference record.Evaluation, opt stats.Options) (stats.Paired, error) {
	a, b, err := PairScores(e, reference)
	if err != nil {
		return stats.Paired{}, err
	}
	opt.Most = record.Most(e, reference)
	return stats.PairedDifference(a, b, ClustersOf(e, reference),
		stats.Correction{ChosenFrom: max(e.ChosenFrom, reference.ChosenFrom), Look: e.Look.With(reference.Look)}, opt)
}

// ClustersOf returns the clusters of e's questions in their order: as e knows them, else as the reference does; nil
// where neither knows any.
func ClustersOf(e, reference record.Evaluation) []int64 {
	if e.Clusters != nil || reference.Clusters == nil {
		return e.Clusters
	}
	return InOrder(reference.QueryIDs, reference.Clusters, e.QueryIDs)
}

// InOrder returns the clusters of questions in another order; nil where one of those is not known.
func InOrder(ids, clusters, wanted []int64) []int64 {
	of := make(map[int64]int64, len(ids))
	for i, id := range ids {
		of[id] = clusters[i]
	}
	out := make([]int64, len(wanted))
	for i, id := range wanted {
		c, ok := of[id]
		if !ok {
			return nil
		}
		out[i] = c
	}
	return out
}

// PairScores returns the scores of the same queries in the same order.
func PairScores(e, reference record.Evaluation) (a, b []float64, err error) {
	if slices.Equal(e.QueryIDs, reference.QueryIDs) {
		return e.Scores, reference.Scores, nil
	}
	where := fmt.Sprintf("%s against %s on %s (%s)", e.Policy, reference.Policy, e.Split, e.Metric)
	score := make(map[int64]float64, len(reference.QueryIDs))
	for i, id := range reference.QueryIDs {
		if _, twice := score[id]; twice {
			return nil, nil, fmt.Errorf("%s: query %d occurs twice", where, id)
		}
		score[id] = reference.Scores[i]
	}
	for i, id := range e.QueryIDs {
		s, ok := score[id]
		if !ok {
			return nil, nil, fmt.Errorf("%s: query %d was scored on one side only: want the same questions", where, id)
		}
		a, b = append(a, e.Scores[i]), append(b, s)
	}
	if len(a) != len(score) {
		return nil, nil, fmt.Errorf("%s: %d and %d queries: want the same questions", where, len(a), len(score))
	}
	return a, b, nil
}

// MetricName writes a metric as words: top1 accuracy.
func MetricName(metric string) string { return strings.ReplaceAll(metric, "_", " ") }

// ListsBestFirst reports whether the recorded candidates are listed best first: then no policy can pass that order.
func ListsBestFirst(stages []record.StageResult) bool {
	return slices.ContainsFunc(stages, func(r record.StageResult) bool {
		return r.Policy == record.PolicyRecorded && r.Metric == "top1_accuracy" && r.Mean == 1
	})
}

// WriteSummary writes summary.json of the run folder, replacing it whole. Evaluations left nil are
// computed from evals.jsonl.
func WriteSummary(dir string, s record.Summary) error {
	if s.Evaluations == nil {
		evals, err := record.ReadEvals(dir)
		if err != nil {
			return err
		}
		if s.Evaluations, err = Stages(evals, stats.DefaultOptions()); err != nil {
			return err
		}
	}
	return atomicfile.WriteJSON(filepath.Join(dir, record.SummaryFile), s)
}

// StagesOf takes the results of summary.json, or computes them where the run has not ended.
func StagesOf(r *record.Run) ([]record.StageResult, error) {
	if r.Summary != nil && r.Summary.Evaluations != nil {
		return r.Summary.Evaluations, nil
	}
	return Stages(r.Evaluations, stats.DefaultOptions())
}

// EvaluationOf returns what a run scored on a split by a metric.
func EvaluationOf(r *record.Run, split, metric, policy string) (record.Evaluation, error) {
	what := cmp.Or(policy, "a trained policy")
	tables := StageTables(r.Evaluations)
	if policy != "" { // one that is asked for by its name was not chosen, though the chosen one may be the same
		tables = asRecorded(r.Evaluations)
	}
	for _, table := range tables {
		if table[0].Split != split || table[0].Metric != metric {
			continue
		}
		at := PlannedStage(table)
		if policy != "" {
			at = slices.IndexFunc(table, func(e record.Evaluation) bool { return e.Policy == policy })
		}
		if at >= 0 {
			return table[at], nil
		}
	}
	return record.Evaluation{}, fmt.Errorf("%s: no evaluation of %s on %s by %s", r.Dir, what, split, metric)
}
