package conversation

import (
	"encoding/json"
	"strings"

	"fulcrum/internal/chat"
)

// Sample is one prompt and what is known about good completions of it.
type Sample struct {
	ID          int64           // unique in its set; splits and caches go by it
	Name        string          // the record's own id, for messages and reports
	Messages    []chat.Message  // the prompt: all turns before the one to complete
	Reference   string          // target completion: the last assistant turn; "" = none
	Answers     []string        // of annotators, for VQA accuracy
	Completions []Recorded      // recorded completions with rewards, for RCE
	Meta        json.RawMessage // the record's meta object as it stands, or nil
	Root        string          // folder that relative paths in Meta are taken from
}

// Recorded is a completion whose reward is known.
type Recorded struct {
	Text   string
	Reward float64
}

// Text returns the prompt's text: the turns' texts joined by line ends, images and videos as their tags.
func (s *Sample) Text() string {
	var out []byte
	for i, m := range s.Messages {
		if i > 0 {
			out = append(out, '\n')
		}
		if m.Parts == nil {
			out = append(out, m.Text...)
			continue
		}
		for _, p := range m.Parts {
			switch p.Type {
			case "text":
				out = append(out, p.Text...)
			default:
				out = append(append(append(out, '<'), p.Type...), '>')
			}
		}
	}
	return string(out)
}

// Images returns the files of the prompt's images, in order; those made in memory have none.
func (s *Sample) Images() []string {
	var out []string
	for _, m := range s.Messages {
		for _, p := range m.Parts {
			if p.Type == "image" && p.Path != "" {
				out = append(out, p.Path)
			}
		}
	}
	return out
}

func (s *Sample) paths() []string {
	var out []string
	for _, m := range s.Messages {
		for _, p := range m.Parts {
			if p.Path != "" && !strings.HasPrefix(p.Path, "data:") {
				out = append(out, p.Path)
			}
			out = append(out, p.Frames...)
		}
	}
	return out
}
