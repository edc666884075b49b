package record

import "path/filepath"

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
