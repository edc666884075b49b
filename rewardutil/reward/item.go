package reward

import (
	"context"
	"encoding/json"
	"fmt"
)

// Item is one completion to score, with the fields of its record by which it is judged.
type Item struct {
	Name       string          // of the record, for messages
	Prompt     string          // text of the conversation so far, without the chat template
	Completion string          // the policy's text without special tokens
	Reference  string          // the target completion, "" where there is none
	Answers    []string        // of human annotators
	Images     []string        // files of the prompt's images, for external scorers
	Meta       json.RawMessage // the record's own meta object, or nil
	Root       string          // folder that relative paths in Meta are taken from
}

// Reward scores completions: one finite number for each item, in order. It returns the same for the same
// items and may be called from several goroutines at once. An item that lacks what the reward needs, such
// as annotators' answers, is an error that names the item.
type Reward interface {
	Score(ctx context.Context, items []Item) ([]float64, error)
}

// byReference scores each completion against that of its record, which must have one.
func byReference(items []Item, name string, score func(completion, reference string) float64) ([]float64, error) {
	out := make([]float64, len(items))
	for i, it := range items {
		if it.Reference == "" {
			return nil, itemErrorf(items, i, "%s needs a reference completion, and the record has none: its last turn must be the "+
				"assistant's answer", name)
		}
		out[i] = score(it.Completion, it.Reference)
	}
	return out, nil
}

func itemErrorf(items []Item, i int, format string, args ...any) error {
	name := items[i].Name
	if name == "" {
		name = fmt.Sprintf("item %d", i)
	}
	return fmt.Errorf("%s: "+format, append([]any{name}, args...)...)
}
