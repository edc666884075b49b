package lvlm

import (
	"encoding/json"
	"fmt"
	"slices"

	"fulcrum/internal/chat"
	"fulcrum/internal/jsonwords"
)

// protocol is how a kind of server is asked, and how its answers read.
type protocol interface {
	// scoring returns the path and the body that ask for the log-probabilities of a prompt with its answer.
	scoring(p Prompt) (path string, body any, err error)
	// answering asks for a greedy answer and the top log-probabilities of its tokens; 0 = none.
	answering(p Prompt, top int) (path string, body any, err error)
	// scored reads the last tokens of the prompt, at least as many as asked for: the answer and its end are among them.
	scored(reply []byte, last int) (echo, error)
	// answered reads a greedy answer.
	answered(reply []byte) (greedy, error)
}

// rawScorer is a protocol in which the text of a prompt may be given as it is.
type rawScorer interface {
	// scoringText asks for the log-probabilities of a text with the images of a prompt.
	scoringText(p Prompt, text string) (path string, body any, err error)
}

// told is a token as a server tells it.
type told struct {
	id      int    // -1: not told
	text    string // "": not told, or a token without text
	logProb *float64
	top     []told // the likeliest at its place
}

// echo is a scored prompt.
type echo struct {
	tokens   []told // the last ones
	first    *told  // nil: not told
	ids      []int  // of the whole prompt; nil: not told
	length   int    // of the whole prompt, images expanded
	model    string // "": not told
	revision string // of the server's program or model
}

// greedy is the model's own answer.
type greedy struct {
	text   string // raw up to the end of the turn (server.answer)
	raw    string // as the server wrote it
	tokens []told
	prompt int // tokens of the prompt; 0 = not told
}

// usage is what a server says of the lengths of a request.
type usage struct {
	Prompt int  `json:"prompt_tokens"`
	New    *int `json:"completion_tokens"` // nil: not told
}

// vllm is vLLM's /v1/chat/completions, with its further parameters.
type vllm struct{ *server }

type vllmBody struct {
	Model          string `json:"model"`
	Messages       []any  `json:"messages"`
	Generation     bool   `json:"add_generation_prompt"`
	Continue       bool   `json:"continue_final_message"`
	ChatTemplate   string `json:"chat_template,omitempty"`
	MaxTokens      int    `json:"max_tokens"`
	Temperature    int    `json:"temperature"`
	Repetition     int    `json:"repetition_penalty"` // 1 = none: else that of the model's generation_config.json counts
	ReturnTokenIDs bool   `json:"return_token_ids"`
	PromptLogProbs int    `json:"prompt_logprobs,omitempty"`
	LogProbs       bool   `json:"logprobs,omitempty"`
	TopLogProbs    int    `json:"top_logprobs,omitempty"`
	TokensAsIDs    bool   `json:"return_tokens_as_token_ids,omitempty"`
}

func (s vllm) body(p Prompt) (vllmBody, error) {
	messages, err := s.messages(p)
	b := vllmBody{Model: s.model, Messages: messages, Repetition: 1, ReturnTokenIDs: true,
		Generation: p.Query.Answer == "", Continue: p.Query.Answer != ""}
	if s.rendering.given {
		b.ChatTemplate = s.rendering.template.Source()
	}
	return b, err
}

// scoring ends the answer with the text that ends a turn: continue_final_message cuts what the template writes behind it.
func (s vllm) scoring(p Prompt) (string, any, error) {
	p.Query.Answer += s.rendering.ending
	b, err := s.body(p)
	b.MaxTokens, b.PromptLogProbs = 1, 1
	return "/v1/chat/completions", b, err
}

func (s vllm) answering(p Prompt, top int) (string, any, error) {
	b, err := s.body(p)
	b.MaxTokens, b.LogProbs, b.TopLogProbs, b.TokensAsIDs = s.opt.MaxNewTokens, top > 0, top, top > 0
	return "/v1/chat/completions", b, err
}

type chatReply struct {
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
	Choices     []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		TokenIDs []int `json:"token_ids"`
		LogProbs struct {
			Content []struct {
				Token   string   `json:"token"`
				LogProb *float64 `json:"logprob"`
				Top     []struct {
					Token   string   `json:"token"`
					LogProb *float64 `json:"logprob"`
				} `json:"top_logprobs"`
			} `json:"content"`
		} `json:"logprobs"`
	} `json:"choices"`
	Usage          usage             `json:"usage"`
	PromptTokenIDs []int             `json:"prompt_token_ids"`
	PromptLogProbs []json.RawMessage `json:"prompt_logprobs"` // promptEntry, of which only the last are read: there are thousands
}

// promptEntry has the log-probabilities of the prompt's own token and of the likeliest, by id.
type promptEntry map[int]struct {
	LogProb *float64 `json:"logprob"`
	Text    string   `json:"decoded_token"`
}

func (s vllm) scored(reply []byte, last int) (echo, error) {
	var r chatReply
	if err := jsonwords.Unmarshal(reply, &r); err != nil {
		return echo{}, fmt.Errorf("its answer is no JSON of a chat: %w", err)
	}
	if r.PromptLogProbs == nil {
		return echo{}, fmt.Errorf("it gives no log-probabilities of the prompt (prompt_logprobs): it cannot score")
	}
	ids, entries := r.PromptTokenIDs, r.PromptLogProbs
	if len(ids) == 0 || len(ids) > len(entries) {
		return echo{}, fmt.Errorf("it tells %d tokens of the prompt (prompt_token_ids) and %d log-probabilities: want as many", len(ids),
			len(entries))
	}
	e := echo{ids: ids, length: len(entries), model: r.Model, revision: r.Fingerprint}
	first, _, err := readEntry(entries[0], ids[0])
	e.first = &first
	folded := len(ids) < len(entries) // images are expanded among the log-probabilities only: up to the last one the places differ
	for n := 1; n <= min(last, len(ids)) && err == nil; n++ {
		id, raw := ids[len(ids)-n], entries[len(entries)-n]
		t, own, bad := readEntry(raw, id)
		if !own && folded {
			break
		}
		if err = bad; err == nil && !own && string(raw) != "null" {
			err = fmt.Errorf("token %d of the prompt, id %d, has no log-probability of its own, only those of other tokens", len(ids)-n+1, id)
		}
		e.tokens = append(e.tokens, t)
	}
	slices.Reverse(e.tokens)
	return e, err
}

// readEntry reads the log-probability of a prompt's own token; own: it has one.
func readEntry(raw json.RawMessage, id int) (t told, own bool, err error) {
	var entry promptEntry
	err = jsonwords.Unmarshal(raw, &entry)
	found, own := entry[id]
	t = told{id: id, text: found.Text, logProb: found.LogProb}
	for other, f := range entry {
		if other != id {
			t.top = append(t.top, told{id: other, text: f.Text, logProb: f.LogProb})
		}
	}
	return t, own, err
}

func (s vllm) answered(reply []byte) (greedy, error) {
	var r chatReply
	if err := jsonwords.Unmarshal(reply, &r); err != nil {
		return greedy{}, fmt.Errorf("its answer is no JSON of a chat: %w", err)
	}
	if len(r.Choices) == 0 {
		return greedy{}, fmt.Errorf("it answers without a choice")
	}
	c := r.Choices[0]
	g := greedy{raw: c.Message.Content, prompt: r.Usage.Prompt}
	for _, entry := range c.LogProbs.Content {
		t := tokenOf(entry.Token, entry.LogProb)
		for _, other := range entry.Top {
			t.top = append(t.top, tokenOf(other.Token, other.LogProb))
		}
		g.tokens = append(g.tokens, t)
	}
	if g.tokens == nil {
		for _, id := range c.TokenIDs {
			g.tokens = append(g.tokens, told{id: id})
		}
	}
	return g, nil
}

// tokenOf reads a token that is told as "token_id:17" where that was asked for, or else as its text.
func tokenOf(text string, logProb *float64) told {
	id := -1
	if n, err := fmt.Sscanf(text, "token_id:%d", &id); n == 1 && err == nil {
		text = ""
	}
	return told{id: id, text: text, logProb: logProb}
}

// messages returns the turns as OpenAI's API has them.
func (s *server) messages(p Prompt) ([]any, error) {
	var out []any
	for _, m := range Messages(p) {
		var content any = m.Text
		if m.Parts != nil {
			var parts []any
			for _, part := range m.Parts {
				if part.Type == chat.Text {
					parts = append(parts, map[string]any{"type": "text", "text": part.Text})
					continue
				}
				url, err := s.pictures.URL(part.Path)
				if err != nil {
					return nil, err
				}
				parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}})
			}
			content = parts
		}
		out = append(out, map[string]any{"role": m.Role, "content": content})
	}
	return out, nil
}

// Messages returns a prompt as turns, as every backend asks it: the image and the question of each demonstration, its answer as
// the assistant's turn, then the query. Where the query has an answer it is the last turn; without one the model is to answer.
func Messages(p Prompt) []chat.Message {
	var msgs []chat.Message
	ask := func(e Example) {
		user := chat.Message{Role: "user", Text: e.Question}
		if e.Image != "" { // templates of language models take a content that is one text, no list of parts
			user.Text, user.Parts = "", []chat.Part{{Type: chat.Image, Path: e.Image}, {Type: chat.Text, Text: e.Question}}
		}
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
