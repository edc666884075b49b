package lvlm

import "fulcrum/internal/chat"

// Messages returns a prompt as turns, as every backend asks it: the image and the question of each demonstration, its answer as
// the assistant's turn, then the query. Where the query has an answer it is the last turn; without one the model is to answer.
func Messages(p Prompt) []chat.Message {
	var msgs []chat.Message
	ask := func(e Example) {
		user := chat.Message{Role: "user"}
		if e.Image != "" {
			user.Parts = append(user.Parts, chat.Part{Type: chat.Image, Path: e.Image})
		}
		user.Parts = append(user.Parts, chat.Part{Type: chat.Text, Text: e.Question})
		msgs = append(msgs, user)
		if e.Answer != "" {
			msgs = append(msgs, chat.Message{Role: "assistant", Text: e.Answer})
		}
	}
	for _, shot := range p.Shots {
		ask(shot)
	}
	ask(p.Query)
	return msgs
}
