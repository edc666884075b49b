package texts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/chat"
	"fulcrum/internal/jsonwords"
)

type record struct {
	id, source, target string
	completions        []conversation.Recorded // recorded completions with rewards; JSON files may have them
}

// sample turns a record into a conversation of one turn.
func (r record) sample(row int64, prefix string) conversation.Sample {
	return conversation.Sample{ID: row, Name: r.id, Reference: r.target, Completions: r.completions,
		Messages: []chat.Message{{Role: "user", Text: prefix + r.source}}}
}

// check refuses records that nothing can be learned from.
func (r record) check(c columns) error {
	switch {
	case strings.TrimSpace(r.source) == "":
		return fmt.Errorf("%s is empty: want a text", c.source)
	case strings.TrimSpace(r.target) == "":
		return fmt.Errorf("%s is empty: want a text", c.target)
	}
	return nil
}

func decode(raw []byte, c columns) (record, error) {
	var r record
	var fields map[string]json.RawMessage
	if err := jsonwords.Unmarshal(raw, &fields); err != nil {
		return r, err
	}
	for _, f := range []struct {
		name string
		into *string
	}{{c.id, &r.id}, {c.source, &r.source}, {c.target, &r.target}} {
		value, ok := fields[f.name]
		switch {
		case f.into == &r.id:
			r.id = conversation.AsText(value)
		case !ok:
			return r, fmt.Errorf("no %s: want a text", f.name)
		case string(value) == "null":
			return r, fmt.Errorf("%s: got a JSON null, want a text", f.name)
		default:
			if err := jsonwords.Unmarshal(value, f.into); err != nil {
				return r, fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	if value, ok := fields["completions"]; ok {
		var list []conversation.Completion
		if err := jsonwords.Unmarshal(value, &list); err != nil {
			return r, errors.New(`completions: want a list of {"text": …, "reward": a number}`)
		}
		var err error
		if r.completions, err = conversation.Completions(list); err != nil {
			return r, err
		}
	}
	return r, r.check(c)
}
