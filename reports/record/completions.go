package record

import (
	"fmt"
	"path/filepath"

	"fulcrum/internal/jsonwords"
)

const CompletionsFile = "completions.jsonl"

// Completion is one sampled text of a group, with what it earned.
type Completion struct {
	QueryID   int64              `json:"query_id"`
	Question  string             `json:"question,omitempty"`  // the prompt's text
	Reference string             `json:"reference,omitempty"` // the target answer
	Answers   []string           `json:"answers,omitempty"`   // of the annotators
	Pictures  Pictures           `json:"pictures,omitempty"`  // of the prompt, small
	Group     int                `json:"group"`               // number in its group, from 0
	Text      string             `json:"text"`
	Tokens    []int64            `json:"tokens"`
	Truncated bool               `json:"truncated"` // cut at the length limit
	Reward    float64            `json:"reward"`
	Terms     map[string]float64 `json:"terms,omitempty"` // the reward's parts, before their weights
	Advantage float64            `json:"advantage"`       // over its whole group
}

// SampledCompletion is one line of completions.jsonl: a Completion and the step that sampled it.
type SampledCompletion struct {
	Phase string `json:"phase"`
	Epoch int    `json:"epoch"`
	Step  int    `json:"step"` // within the phase, from 1
	Completion
}

// appendCompletions appends the rows of one step to completions.jsonl and makes them durable.
func appendCompletions(dir, phase string, epoch, step int, rows []Completion) error {
	path := filepath.Join(dir, CompletionsFile)
	var data []byte
	for _, c := range rows {
		line, err := jsonwords.Marshal(SampledCompletion{phase, epoch, step, c})
		if err != nil {
			return fmt.Errorf("%s: query %d: %w", path, c.QueryID, err) // a reward or advantage that is no finite number
		}
		data = append(append(data, line...), '\n')
	}
	return appendDurably(path, data)
}
