package reports

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"fulcrum/internal/jsonwords"
)

const evalsFile = "evals.jsonl"

// Evaluation is one line of evals.jsonl: the score of every query of a split under one policy, so
// that stages and runs can be compared query by query.
type Evaluation struct {
	Split    string    `json:"split"`  // val, dev, …
	Policy   string    `json:"policy"` // random, similarity, majority, init, best_beam, oracle, reference, sft, rce, grpo, grpo_online, best
	Phase    string    `json:"phase"`
	Epoch    int       `json:"epoch"`
	Metric   string    `json:"metric"` // reward or accuracy
	Shots    int       `json:"shots"`
	QueryIDs []int64   `json:"query_ids"`
	Scores   []float64 `json:"scores"` // finite
	// Clusters [n] are the groups of questions that are not independent, those about one image for instance, or by
	// eval.cluster. Nil: each question stands alone.
	Clusters []int64 `json:"clusters,omitempty"`
	// ChosenFrom is how many checkpoints competed, where the policy was chosen from them by these very scores; 0: it
	// was not.
	ChosenFrom int `json:"chosen_from,omitempty"`
}

// Mean returns the mean score.
func (e Evaluation) Mean() float64 { return meanOf(e.Scores) }

// meanSE returns the mean score and its standard error over clusters, 0 where there are fewer than two.
func (e Evaluation) meanSE() (mean, se float64) {
	g := newGrouping(e.Clusters)
	if mean, se = g.meanSE(e.Scores); g.units(len(e.Scores)) < 2 {
		se = 0
	}
	return mean, se
}

// key says which evaluations are the same one made again.
func (e Evaluation) key() string {
	return fmt.Sprintf("%s/%s/%s/%d/%s/%d", e.Split, e.Policy, e.Phase, e.Epoch, e.Metric, e.Shots)
}

func (e Evaluation) validate() error {
	where := fmt.Sprintf("evaluation of %s on %s (%s)", e.Policy, e.Split, e.Metric)
	if e.Split == "" || e.Policy == "" || e.Metric == "" {
		return fmt.Errorf("%s: split, policy and metric must be named", where)
	}
	if len(e.QueryIDs) != len(e.Scores) {
		return fmt.Errorf("%s: %d query ids and %d scores: want as many", where, len(e.QueryIDs), len(e.Scores))
	}
	if e.Clusters != nil && len(e.Clusters) != len(e.Scores) {
		return fmt.Errorf("%s: %d clusters and %d scores: want as many", where, len(e.Clusters), len(e.Scores))
	}
	for i, s := range e.Scores {
		if math.IsNaN(s) || math.IsInf(s, 0) {
			return fmt.Errorf("%s: query %d: score %g is no finite number", where, e.QueryIDs[i], s)
		}
	}
	return nil
}

// AppendEvals appends evaluations to evals.jsonl of the run folder and makes them durable.
func AppendEvals(dir string, evals ...Evaluation) error {
	path := filepath.Join(dir, evalsFile)
	var data []byte
	for _, e := range evals {
		if err := e.validate(); err != nil {
			return err
		}
		line, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		data = append(append(data, line...), '\n')
	}
	return appendDurably(path, data)
}

// appendDurably adds whole lines to a file in one system call and waits for the disk.
func appendDurably(path string, data []byte) error {
	f, err := appendTo(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// ReadEvals reads evals.jsonl in order of first appearance; an evaluation made again replaces the
// earlier one. A folder without the file has no evaluations.
func ReadEvals(dir string) ([]Evaluation, error) {
	var evals []Evaluation
	index := map[string]int{}
	err := eachLine(filepath.Join(dir, evalsFile), func(line []byte) error {
		var e Evaluation
		if err := jsonwords.Unmarshal(line, &e); err != nil {
			return err
		}
		if err := e.validate(); err != nil {
			return err
		}
		if i, seen := index[e.key()]; seen {
			evals[i] = e
			return nil
		}
		index[e.key()] = len(evals)
		evals = append(evals, e)
		return nil
	})
	return evals, err
}

// StageResult is one line of a run's result table: a policy's score on a split and what it gains, on
// the same questions, over a baseline (similarity, or the majority answer) and over the initial policy.
type StageResult struct {
	Split          string  `json:"split"`
	Metric         string  `json:"metric"`
	Policy         string  `json:"policy"`
	Phase          string  `json:"phase"`
	Epoch          int     `json:"epoch"`
	Shots          int     `json:"shots"` // of token policies: the most tokens of an answer
	Queries        int     `json:"queries"`
	Mean           float64 `json:"mean"`
	SE             float64 `json:"se"`
	OverSimilarity *Paired `json:"over_similarity,omitempty"`
	OverMajority   *Paired `json:"over_majority,omitempty"`
	OverRecorded   *Paired `json:"over_recorded,omitempty"`
	OverInit       *Paired `json:"over_init,omitempty"`
}

// Baselines and stages, as evals.jsonl names them. A phase has its own name.
const (
	policyRandom     = "random"
	policySimilarity = "similarity"
	policyMajority   = "majority" // the most frequent training answer for every question
	policyInit       = "init"
	policyBest       = "best"
	policyBestBeam   = "best_beam" // the best recorded beam of each query, what sft imitates
	policyOracle     = "oracle"
	policyRecorded   = "recorded_order" // the order in which the file lists the recorded candidates
	policyReference  = "reference"      // the target answers themselves
	policyResults    = "results"        // of a result file (task=evaluate)
)

// title names a stage for readers.
func (s StageResult) title() string {
	switch s.Policy {
	case policyRandom, policySimilarity, policyMajority, policyOracle, policyReference:
		return s.Policy
	case policyBestBeam:
		return "best beam"
	case policyRecorded:
		return "recorded order"
	case policyInit:
		return "initial policy"
	case policyResults:
		return "result file"
	case policyBest:
		if s.Phase == "" || s.Phase == policyInit {
			return "best (initial policy)"
		}
		return fmt.Sprintf("best (%s epoch %d)", s.Phase, s.Epoch)
	}
	if s.Epoch > 0 {
		return fmt.Sprintf("after %s (epoch %d)", s.Policy, s.Epoch)
	}
	return "after " + strings.TrimSpace(s.Policy)
}

// subject names a stage inside a sentence.
func (s StageResult) subject() string {
	title := s.title()
	if s.Policy == policyBest {
		return strings.Replace(title, "best", "the best policy", 1)
	}
	return "the policy " + title
}

// heldOut reports whether a split is neither trained on nor chosen by.
func heldOut(split string) bool { return split != "val" && split != "train" }
