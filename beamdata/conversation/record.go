package conversation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulcrum/beamdata/jsonrecords"
	"fulcrum/internal/chat"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/registry"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/vqa"
)

// record is one object of a conversations file. Keys that are not named here are allowed and ignored: the
// public sets carry many (source, width, dataset).
type record struct {
	ID            json.RawMessage `json:"id"` // text or number
	Image         json.RawMessage `json:"image"`
	Images        json.RawMessage `json:"images"`
	Video         json.RawMessage `json:"video"`
	Videos        json.RawMessage `json:"videos"`
	Conversations []turn          `json:"conversations"`
	Messages      json.RawMessage `json:"messages"`
	Prompt        json.RawMessage `json:"prompt"` // TRL's and verl's columns, texts or lists of messages, where the two above are not
	Completion    json.RawMessage `json:"completion"`
	Response      json.RawMessage `json:"response"`
	Chosen        json.RawMessage `json:"chosen"`
	Answer        json.RawMessage `json:"answer"`
	Solution      json.RawMessage `json:"solution"`
	System        string          `json:"system"`
	Answers       json.RawMessage `json:"answers"`
	Completions   []Completion    `json:"completions"`
	Meta          json.RawMessage `json:"meta"`
}

// turn is one entry of conversations: from and value, or role and content.
type turn struct {
	From    string  `json:"from"`
	Role    string  `json:"role"`
	Value   *string `json:"value"`
	Content *string `json:"content"`
}

// decode turns the bytes of a record into a sample. root is the folder of its relative paths; videos have the bounds of v
// unless the record has its own.
func decode(raw []byte, root string, v VideoOptions) (Sample, error) {
	var rec record
	if err := jsonwords.Unmarshal(raw, &rec); err != nil {
		return Sample{Name: nameOf(raw)}, err
	}
	s := Sample{Name: AsText(rec.ID), Root: root}
	if given(rec.Meta) {
		s.Meta = rec.Meta
	}
	files, err := rec.files(root)
	if err != nil {
		return s, err
	}
	messages, err := rec.messages(files, root)
	if err != nil {
		return s, err
	}
	if err := v.apply(messages, rec.Meta); err != nil {
		return s, err
	}
	if rec.System != "" && messages[0].Role != "system" {
		messages = slices.Insert(messages, 0, chat.Message{Role: "system", Text: rec.System})
	}
	if s.Answers, err = answers(rec.Answers); err != nil {
		return s, err
	}
	if s.Completions, err = Completions(rec.Completions); err != nil {
		return s, err
	}
	s.Messages, s.Reference, err = cut(messages)
	for i, raw := range []json.RawMessage{rec.Answer, rec.Solution} {
		if s.Reference == "" && err == nil && given(raw) && (raw[0] == '[' || raw[0] == '{') { // its brackets are no completion to learn
			err = fmt.Errorf("%s: got a list or an object, want a text or a number", []string{"answer", "solution"}[i])
		}
		s.Reference = cmp.Or(s.Reference, AsText(raw))
	}
	s.Reference = cmp.Or(s.Reference, vqa.Majority(s.Answers))
	return s, err
}

type Completion struct {
	Text   *string  `json:"text"`
	Reward *float64 `json:"reward"`
}

func Completions(list []Completion) (out []Recorded, err error) {
	for i, c := range list {
		if c.Text == nil || c.Reward == nil {
			return nil, fmt.Errorf(`completions[%d]: want {"text": …, "reward": a number}`, i)
		}
		if err := group.CheckReward(*c.Reward); err != nil {
			return nil, fmt.Errorf("completions[%d]: reward = %v, %w", i, *c.Reward, err)
		}
		out = append(out, Recorded{*c.Text, *c.Reward})
	}
	return out, nil
}

// messages returns the turns, with the files in place of their tags.
func (r *record) messages(files *files, root string) ([]chat.Message, error) {
	var messages []chat.Message
	var err error
	switch {
	case len(r.Conversations) > 0 && given(r.Messages):
		return nil, errors.New("both conversations and messages: want one of them")
	case len(r.Conversations) > 0:
		for i, t := range r.Conversations {
			m, err := t.message(files)
			if err != nil {
				return nil, fmt.Errorf("conversations[%d]: %w", i, err)
			}
			messages = append(messages, m)
		}
	case !given(r.Messages) && given(r.Chosen):
		return nil, errors.New(`chosen and rejected: want them as "completions": [{"text": chosen, "reward": 1}, {"text": rejected, "reward": 0}]`)
	case given(r.Messages) || given(r.Prompt):
		if messages, err = r.turns(); err != nil {
			return nil, err
		}
		for i := range messages {
			if roles := []string{"system", "user", "assistant", "tool"}; !slices.Contains(roles, messages[i].Role) {
				return nil, fmt.Errorf("messages[%d]: %w", i, registry.Unknown("role", messages[i].Role, roles))
			}
			if err := files.fill(&messages[i], root); err != nil {
				return nil, fmt.Errorf("messages[%d]: %w", i, err)
			}
		}
	}
	if len(messages) == 0 {
		return nil, errors.New("no turns: want conversations (from, value), messages (role, content) or prompt")
	}
	return messages, files.used()
}

// turns returns messages, or prompt and completion, each a text, which is a turn, or a list of messages.
func (r *record) turns() (out []chat.Message, err error) {
	if given(r.Messages) {
		return chat.ParseMessages(r.Messages)
	}
	if given(r.Completion) && given(r.Response) {
		return nil, errors.New("both completion and response: want one of them")
	}
	for _, of := range []struct {
		key, role string
		raw       json.RawMessage
	}{{"prompt", "user", r.Prompt}, {"completion", "assistant", r.Completion}, {"response", "assistant", r.Response}} {
		switch {
		case !given(of.raw):
		case of.raw[0] == '[':
			list, err := chat.ParseMessages(of.raw)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", of.key, err)
			}
			out = append(out, list...)
		default:
			m := chat.Message{Role: of.role}
			if err := jsonwords.Unmarshal(of.raw, &m.Text); err != nil || strings.TrimSpace(m.Text) == "" {
				return nil, fmt.Errorf("%s: want a text that is not empty, or a list of messages", of.key)
			}
			out = append(out, m)
		}
	}
	return out, nil
}

// message turns one entry into a message. Tags count in what the user says; elsewhere they are text.
func (t turn) message(files *files) (chat.Message, error) {
	from, value := cmp.Or(t.From, t.Role), cmp.Or(t.Value, t.Content)
	if value == nil {
		return chat.Message{}, errors.New("no value: want a text")
	}
	switch role := cmp.Or(map[string]string{"gpt": "assistant"}[from], from); role {
	case "human", "user":
		return files.user(*value)
	case "assistant", "system":
		return chat.Message{Role: role, Text: *value}, nil
	}
	return chat.Message{}, fmt.Errorf("from: %w", registry.Unknown("speaker", from, []string{"human", "gpt", "system", "user",
		"assistant"}))
}

// cut separates the prompt from its reference completion: the last turn when the assistant speaks it.
func cut(messages []chat.Message) ([]chat.Message, string, error) {
	last := messages[len(messages)-1]
	if last.Role != "assistant" {
		return messages, "", nil
	}
	reference := last.Text
	for _, p := range last.Parts {
		if p.Type != "text" {
			return nil, "", fmt.Errorf("the last assistant turn holds a part of type %s: want text", p.Type)
		}
		reference += p.Text
	}
	if strings.TrimSpace(reference) == "" {
		return nil, "", errors.New("the last assistant turn is empty: want the completion to learn, or leave the turn out")
	}
	if len(messages) == 1 || !slices.ContainsFunc(messages, func(m chat.Message) bool { return m.Role == "user" }) {
		return nil, "", errors.New("no user turn before the completion")
	}
	return messages[:len(messages)-1], reference, nil
}

// answers reads a list of texts, or of objects with an answer as VQA annotations have them.
func answers(raw json.RawMessage) ([]string, error) {
	if !given(raw) {
		return nil, nil
	}
	var list []json.RawMessage
	if err := jsonwords.Unmarshal(raw, &list); err != nil {
		return nil, errors.New(`answers: want a list of texts, or of {"answer": text}`)
	}
	out := make([]string, len(list))
	for i, a := range list {
		var object struct {
			Answer *string `json:"answer"`
		}
		if given(a) && json.Unmarshal(a, &out[i]) == nil {
			continue
		}
		if json.Unmarshal(a, &object) != nil || object.Answer == nil {
			return nil, fmt.Errorf(`answers[%d]: want a text or {"answer": text}`, i)
		}
		out[i] = *object.Answer
	}
	return out, nil
}

// AsText returns a JSON text or number as text, "" for none.
func AsText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// nameOf finds the id of a record that does not decode.
func nameOf(raw []byte) (name string) {
	jsonrecords.Fields(raw, func(key, value []byte) {
		if string(key) == `"id"` {
			name = AsText(bytes.TrimSpace(value))
		}
	})
	return name
}
