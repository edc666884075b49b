package record

import (
	"path/filepath"

	"fulcrum/reports/page"
	"fulcrum/reports/stats"
)

// LooksFile keeps which looks at held-out questions the run, or the sweep, in a folder has had. It is written once: every page that is
// made of the folder says the same.
const LooksFile = "looks.json"

type Looks struct {
	ID    string `json:"id"` // of the run or sweep in the ledger
	Looks []Look `json:"looks"`
}

// Look is a scoring of a held-out split by a metric.
type Look struct {
	Split  string   `json:"split"`
	Metric string   `json:"metric"`
	Digest string   `json:"digest"` // of the split's questions
	Sketch []string `json:"-"`      // digest.Sketch of them, for the ledger
	Family string   `json:"-"`      // metric in the ledger, where several share a line; "" = Metric
	Same   string   `json:"-"`      // digest of configuration, data and scores; a run that repeats another has no look of its own; "" = it has
	stats.Look
	Shared bool `json:"shared,omitempty"` // with the other jobs of a sweep
}

// ReadLooks reads looks.json of a folder; a folder without it has none.
func ReadLooks(dir string) (l Looks, err error) {
	err = ReadJSON(filepath.Join(dir, LooksFile), &l)
	return l, err
}

// At returns the look at a split by a metric, nil for none.
func (l Looks) At(split, metric string) *Look {
	for i := range l.Looks {
		if l.Looks[i].Split == split && l.Looks[i].Metric == metric {
			return &l.Looks[i]
		}
	}
	return nil
}

// Sentence says which look it is and what that costs, or that nobody knows.
func (l Look) Sentence() string {
	text := page.Capital(l.Spent())
	if l.Shared {
		text += " The other jobs of the sweep share it: the report of the sweep alone is corrected for their number."
	}
	return text
}

// Looked gives the scores of policies, and of result files, their looks: baselines are no choice of anybody's.
func (l Looks) Looked(evals []Evaluation) []Evaluation {
	for i, e := range evals {
		if look := l.At(e.Split, e.Metric); look != nil && (e.Phase != "" || e.Policy != PolicyInit && !baseline(e.Policy)) {
			evals[i].Look = look.Look
		}
	}
	return evals
}
