package arms

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// Refused is why two runs are not compared by a table: nothing where they are.
type Refused struct {
	Cell string // in place of a verdict
	Why  string // the end of a sentence about two runs
}

// OtherQuestions refuses runs that were scored on other questions.
func OtherQuestions() Refused {
	return Refused{Cell: "not the same questions", Why: "were not scored on the same questions"}
}

// Sentence says so of two runs or arms.
func (r Refused) Sentence(name, reference string) string {
	return fmt.Sprintf("%s and %s %s: no verdict.", name, reference, page.Plain(r.Why))
}

// OtherRewards refuses runs whose scores of one name are rewards of two kinds. Recorded rewards are where drawing at random among the
// recorded candidates scores otherwise, rewards of answers where other terms make them. Scenes of the built-in data that other seeds drew
// have the numbers of the questions in common, and no more.
func OtherRewards(a, b *record.Run, split, metric string) Refused {
	seed := func(r *record.Run) float64 { x, _ := r.SettingNumber("data", "shapes", "seed"); return x }
	if seed(a) != seed(b) {
		return OtherQuestions()
	}
	why := ""
	switch metric {
	case "reward":
		why = otherTerms(rewardTerms(a), rewardTerms(b))
	case "recorded_reward", "top1_accuracy", "pair_accuracy":
		why = otherRecords(a, b, split)
	}
	if why == "" {
		return Refused{}
	}
	return Refused{Cell: "not the same rewards", Why: "were not scored by the same rewards (" + why + ")"}
}

func otherRecords(a, b *record.Run, split string) string {
	random := func(r *record.Run) record.Evaluation {
		e, _ := results.EvaluationOf(r, split, "recorded_reward", record.PolicyRandom)
		return e
	}
	x, y, err := results.PairScores(random(a), random(b))
	if err != nil {
		return "" // the questions are others
	}
	n := list.Count(stat.Indices(len(x)), func(i int) bool { return x[i] != y[i] })
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("other candidates or rewards are recorded for %s of %s", page.Thousands(n), page.Plural(len(x), "question"))
}

func otherTerms(x, y map[string]string) string {
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		a, inA := x[key]
		b, inB := y[key]
		if a != b && (inA && inB || strings.HasSuffix(key, ".weight")) { // a term without weight has no keys, an older program fewer
			return "rewards." + key
		}
	}
	return ""
}

// rewardTerms are the settings of the rewards that count, without those of how a service is asked.
func rewardTerms(r *record.Run) map[string]string {
	all := map[string]string{}
	record.Flatten(all, "", r.Setting("rewards"))
	out := map[string]string{}
	for key, value := range all {
		parts := strings.Split(key, ".")
		if weight := all[parts[0]+".weight"]; weight != "0" && weight != "0.0" && !slices.ContainsFunc(parts, asksService) {
			out[key] = value
		}
	}
	if r.Summary != nil {
		for name, digest := range r.Summary.Data.Scripts {
			out["external: the content of "+name] = digest
		}
	}
	return out
}

func asksService(key string) bool {
	return slices.Contains([]string{"batch_size", "parallel", "keep", "timeout_seconds", "retries", "backoff_seconds", "cache", "key_env",
		"headers"}, key)
}
