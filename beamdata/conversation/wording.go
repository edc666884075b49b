package conversation

import (
	"slices"

	"fulcrum/internal/chat"
)

// wording is what the options add to every prompt.
type wording struct{ system, prefix, suffix string }

// apply puts the system message in front, unless the conversation has one, and prefix and suffix around the
// text of the last user turn: after its images where those come first. It may change messages.
func (w wording) apply(messages []chat.Message) []chat.Message {
	for i := len(messages) - 1; i >= 0; i-- {
		if m := &messages[i]; m.Role == "user" {
			w.wrap(m)
			break
		}
	}
	if w.system != "" && (len(messages) == 0 || messages[0].Role != "system") {
		messages = slices.Insert(messages, 0, chat.Message{Role: "system", Text: w.system})
	}
	return messages
}

func (w wording) wrap(m *chat.Message) {
	if m.Parts == nil {
		m.Text = w.prefix + m.Text + w.suffix
		return
	}
	isText := func(p chat.Part) bool { return p.Type == "text" }
	if w.prefix != "" {
		at := slices.IndexFunc(m.Parts, isText)
		if at < 0 {
			at = len(m.Parts)
		}
		m.Parts = slices.Insert(m.Parts, at, chat.Part{Type: "text", Text: w.prefix})
	}
	if w.suffix != "" {
		m.Parts = append(m.Parts, chat.Part{Type: "text", Text: w.suffix})
	}
}
