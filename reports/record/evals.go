package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/stat"
	"fulcrum/reports/stats"
)

const EvalsFile = "evals.jsonl"

// Evaluation is one line of evals.jsonl: the score of every query of a split under one policy, so
// that stages and runs can be compared query by query.
type Evaluation struct {
	Split string `json:"split"` // val, dev, …
	// random, similarity, majority, init, best_beam, oracle, reference, sft, rce, grpo, grpo_online, best
	Policy   string    `json:"policy"`
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
	// Range is the least and the greatest score that the metric's formula can give; nil: as ScoreRange knows it.
	Range *[2]float64 `json:"range,omitempty"`
	// Look is which look at these questions the scores were, as looks.json says; none of a baseline's.
	Look stats.Look `json:"-"`
}

// ScoreRange returns the bounds of a metric's scores under any configuration. The metric is named as in evaluations or
// with val_ before; infinite ends where nothing is known.
func ScoreRange(metric string) (least, greatest float64) {
	switch metric = strings.TrimPrefix(metric, "val_"); {
	case metric == "cider": // CIDEr-D is ten times a cosine
		return 0, 10
	case strings.HasSuffix(metric, "accuracy"), strings.HasPrefix(metric, "rouge"):
		return 0, 1
	}
	return math.Inf(-1), math.Inf(1)
}

// Bounds returns what the scores lie between; infinite ends where nothing is known, or where a score lies beyond: accuracies in percent.
func (e Evaluation) Bounds() (least, greatest float64) {
	least, greatest = ScoreRange(e.Metric)
	if e.Range != nil {
		least, greatest = e.Range[0], e.Range[1]
	}
	if slices.ContainsFunc(e.Scores, func(x float64) bool { return x < least || x > greatest }) {
		return math.Inf(-1), math.Inf(1)
	}
	return least, greatest
}

// Most returns what the scores of two evaluations can differ by at most; 0 where that is not known.
func Most(a, b Evaluation) float64 {
	least, greatest := a.Bounds()
	lower, upper := b.Bounds()
	if most := max(greatest, upper) - min(least, lower); !math.IsInf(most, 1) {
		return most
	}
	return 0
}

func (e Evaluation) Mean() float64 { return stat.Mean(e.Scores) }

// MeanSE returns the mean score and its standard error over clusters, 0 where there are fewer than two.
func (e Evaluation) MeanSE() (mean, se float64) {
	g := stats.NewGrouping(e.Clusters)
	if mean, se = g.MeanSE(e.Scores); g.Units(len(e.Scores)) < 2 {
		se = 0
	}
	return mean, se
}

// key says which evaluations are the same one made again.
func (e Evaluation) key() string {
	return fmt.Sprintf("%s/%s/%s/%d/%s/%d", e.Split, e.Policy, e.Phase, e.Epoch, e.Metric, e.Shots)
}

func (e Evaluation) Validate() error {
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
	path := filepath.Join(dir, EvalsFile)
	var data []byte
	for _, e := range evals {
		if err := e.Validate(); err != nil {
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
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// ReadEvals reads evals.jsonl in order of first appearance; an evaluation made again replaces the
// earlier one; then those of opened.json. A folder without the files has no evaluations.
func ReadEvals(dir string) ([]Evaluation, error) {
	var evals []Evaluation
	index := map[string]int{}
	err := EachJSON(filepath.Join(dir, EvalsFile), func(e Evaluation) error {
		if err := e.Validate(); err != nil {
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
	if err != nil {
		return evals, err
	}
	opened, err := ReadOpened(dir)
	if err != nil {
		return evals, err
	}
	if opened != nil {
		evals = append(evals, opened.Evaluations...)
	}
	looks, err := ReadLooks(dir)
	return looks.Looked(evals), err
}

// StageResult is one line of a run's result table: a policy's score on a split and what it gains, on the same
// questions, over baselines (similarity, the majority answer, drawing at random), the initial policy and the phase before.
type StageResult struct {
	Split          string        `json:"split"`
	Metric         string        `json:"metric"`
	Policy         string        `json:"policy"`
	Phase          string        `json:"phase"`
	Epoch          int           `json:"epoch"`
	Shots          int           `json:"shots"` // of token policies: the most tokens of an answer
	Queries        int           `json:"queries"`
	Mean           float64       `json:"mean"`
	SE             float64       `json:"se"`
	OverSimilarity *stats.Paired `json:"over_similarity,omitempty"`
	OverMajority   *stats.Paired `json:"over_majority,omitempty"`
	OverRecorded   *stats.Paired `json:"over_recorded,omitempty"`
	OverRandom     *stats.Paired `json:"over_random,omitempty"` // of what a run ended with and of baselines; of every phase where one of these is worse
	OverInit       *stats.Paired `json:"over_init,omitempty"`
	OverPrevious   *stats.Paired `json:"over_previous,omitempty"` // of a phase: over the one before it
}

// Baselines and stages, as evals.jsonl names them. A phase has its own name.
const (
	PolicyRandom     = "random"
	PolicySimilarity = "similarity"
	PolicyMajority   = "majority" // the most frequent training answer for every question
	PolicyInit       = "init"
	PolicyBest       = "best"
	PolicyBestBeam   = "best_beam" // the best recorded beam of each query, what sft imitates
	PolicyOracle     = "oracle"
	PolicyRecorded   = "recorded_order" // the order in which the file lists the recorded candidates
	PolicyReference  = "reference"      // the target answers themselves
	policyResults    = "results"        // of a result file (task=evaluate)

	Placebo = "placebo:" // begins the name of a policy of task=icl that was trained on permuted rewards
)

// baseline reports whether a policy is a rule that learns nothing.
func baseline(policy string) bool {
	return slices.Contains([]string{PolicyRandom, PolicySimilarity, PolicyMajority, PolicyOracle, PolicyReference, PolicyBestBeam,
		PolicyRecorded}, policy)
}

func (s StageResult) Title() string {
	if baseline(s.Policy) {
		return strings.ReplaceAll(s.Policy, "_", " ")
	}
	switch s.Policy {
	case PolicyInit:
		return "initial policy"
	case policyResults:
		return "result file"
	case PolicyBest:
		if s.Phase == "" || s.Phase == PolicyInit {
			return "best (initial policy)"
		}
		return fmt.Sprintf("best (%s epoch %d)", s.Phase, s.Epoch)
	}
	if s.Epoch > 0 {
		return fmt.Sprintf("after %s (epoch %d)", s.Policy, s.Epoch)
	}
	return "after " + strings.TrimSpace(s.Policy)
}

// Subject names a stage inside a sentence.
func (s StageResult) Subject() string {
	title := s.Title()
	if s.Policy == PolicyBest {
		return strings.Replace(title, "best", "the best policy", 1)
	}
	return "the policy " + title
}

// HeldOut reports whether a split is neither trained on nor chosen by.
func HeldOut(split string) bool { return split != "val" && split != "train" }

// Sealed is the split of the questions that data.sealed names. No file's name gives it.
const Sealed = "sealed questions"

// OpenedFile is what `run open-test` leaves in a run folder.
const OpenedFile = "opened.json"

// Opened is opened.json: the sealed questions were scored, for a claim that was made before.
type Opened struct {
	Time        string       `json:"time"` // RFC 3339
	Claim       string       `json:"claim"`
	Evaluations []Evaluation `json:"evaluations"` // of the best policy and of baselines
}

// ReadOpened reads opened.json of a run folder, nil where nothing was opened.
func ReadOpened(dir string) (*Opened, error) {
	var o *Opened
	err := ReadJSON(filepath.Join(dir, OpenedFile), &o)
	return o, err
}
