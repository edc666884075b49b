package ledger

import (
	"encoding/json"
	"time"

	"fulcrum/reports/record"
)

// columns returns a job's values in the order of the table.
func (j Job) columns() ([]any, error) {
	named := map[string]record.Number{}
	for name, v := range j.Metrics {
		named[name] = record.Number(v)
	}
	var texts [5]string
	for i, v := range []any{notNil(j.Overrides), notNil(j.Params), notNil(j.Tail), j.Objectives, named} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		texts[i] = string(text)
	}
	return []any{j.Num, texts[0], texts[1], j.Dir, j.Fingerprint, j.Generation, j.State, j.Attempts, j.Failures, j.ExitCode,
		j.Cause, texts[2], texts[3], j.Violation, texts[4], j.Epochs, j.Seconds, j.Arm, j.Parent}, nil
}

// notNil returns [] for none: JSON's null would say unknown.
func notNil(s []string) []string { return append([]string{}, s...) }

// stamp and moment write and read a time; the zero time is "".
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func moment(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
