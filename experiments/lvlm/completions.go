package lvlm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
	"fulcrum/internal/webapi"
)

// completions is OpenAI's /v1/completions of a server that honours echo with logprobs. It reads texts only.
type completions struct{ *server }

type completionsBody struct {
	Model       string   `json:"model"`
	Prompt      string   `json:"prompt"`
	MaxTokens   int      `json:"max_tokens"`
	Temperature int      `json:"temperature"`
	Echo        bool     `json:"echo"`
	LogProbs    int      `json:"logprobs,omitempty"`
	Stop        []string `json:"stop,omitempty"`
	Repetition  int      `json:"repetition_penalty,omitempty"` // 1 = none, as vllm's
	Repeat      int      `json:"repeat_penalty,omitempty"`     // the same at llama-cpp-python, where it is 1.1 by itself
	Special     *bool    `json:"add_special_tokens,omitempty"` // those that the tokenizer puts before a text
}

func (s completions) body(p Prompt) (completionsBody, error) {
	for _, e := range append(p.Shots[:len(p.Shots):len(p.Shots)], p.Query) {
		if e.Image != "" {
			return completionsBody{}, errors.New("the prompt has an image, and backend=completions reads text only: take vllm or " +
				"sglang, or lvlm.images=false")
		}
	}
	text, err := s.rendering.whole(p)
	b := completionsBody{Model: s.model, Prompt: text, Repetition: s.penalty, Repeat: s.penalty}
	if s.begun || s.rendering.tokens != nil && s.rendering.lacks(s.rendering.tokens.Encode(text)) == 0 {
		b.Special = new(false) // the template has written them
	}
	return b, err
}

// learn finds whether the server refuses to be told a penalty, and whether it begins a prompt once more that the template has begun.
func (s completions) learn(ctx context.Context, p Prompt) error {
	e, err := s.score(ctx, p)
	if status, ok := errors.AsType[*webapi.StatusError](err); ok && s.penalty > 0 && strings.Contains(string(status.Said), "_penalty") {
		s.penalty = 0
		s.notes = append(s.notes, "it takes no repetition_penalty or repeat_penalty: answers are those under its own")
		return s.learn(ctx, p)
	}
	if err != nil || s.rendering.tokens != nil {
		return err
	}
	text, err := s.rendering.whole(p)
	begin := e.tokens[0].text
	if rest, ok := strings.CutPrefix(text, begin); begin == "" || len(e.tokens) < 2 || e.tokens[1].text != begin || !ok ||
		strings.HasPrefix(rest, begin) {
		return err
	}
	if s.begun {
		return fmt.Errorf("its prompts begin with %q twice, by itself and by lvlm.template: take it out of the template", begin)
	}
	s.begun = true
	return s.learn(ctx, p)
}

func (s completions) scoring(p Prompt) (string, any, error) { return s.scoringText(p, "") }

// scoringText asks for one new token, which is dropped: to some servers 0 means no bound.
func (s completions) scoringText(p Prompt, text string) (string, any, error) {
	b, err := s.body(p)
	b.Prompt, b.MaxTokens, b.Echo, b.LogProbs = cmp.Or(text, b.Prompt), 1, true, 1
	return "/v1/completions", b, err
}

func (s completions) answering(p Prompt, top int) (string, any, error) {
	b, err := s.body(p)
	b.MaxTokens, b.LogProbs, b.Stop = s.opt.MaxNewTokens, min(top, 5), []string{s.rendering.ending} // OpenAI's API has 5 at most
	return "/v1/completions", b, err
}

type completionsReply struct {
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
	Usage       usage  `json:"usage"`
	Choices     []struct {
		Text     string `json:"text"`
		LogProbs *struct {
			Tokens   []string             `json:"tokens"`
			LogProbs []*float64           `json:"token_logprobs"`
			Top      []map[string]float64 `json:"top_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
}

func (s completions) read(reply []byte) (r completionsReply, tokens []told, err error) {
	if err := jsonwords.Unmarshal(reply, &r); err != nil {
		return r, nil, fmt.Errorf("its answer is no JSON of a completion: %w", err)
	}
	if len(r.Choices) == 0 {
		return r, nil, errors.New("it answers without a choice")
	}
	l := r.Choices[0].LogProbs
	if l == nil {
		return r, nil, nil
	}
	if len(l.Tokens) != len(l.LogProbs) {
		return r, nil, fmt.Errorf("it tells %d tokens and %d log-probabilities: want as many", len(l.Tokens), len(l.LogProbs))
	}
	for i, text := range l.Tokens {
		t := told{id: -1, text: text, logProb: l.LogProbs[i]}
		if i < len(l.Top) {
			for other, v := range l.Top[i] {
				t.top = append(t.top, told{id: -1, text: other, logProb: &v})
			}
		}
		tokens = append(tokens, t)
	}
	return r, tokens, nil
}

func (s completions) scored(reply []byte, _ int) (echo, error) {
	r, tokens, err := s.read(reply)
	if err != nil {
		return echo{}, err
	}
	fresh := option.Or(r.Usage.New, 1)
	if tokens == nil || len(tokens) <= fresh {
		return echo{}, errors.New("it gives no log-probabilities of the prompt (echo with logprobs): it cannot score")
	}
	tokens = tokens[:len(tokens)-fresh]
	return echo{tokens: tokens, first: &tokens[0], length: len(tokens), model: r.Model, revision: r.Fingerprint}, nil
}

func (s completions) answered(reply []byte) (greedy, error) {
	r, tokens, err := s.read(reply)
	if err != nil {
		return greedy{}, err
	}
	return greedy{raw: r.Choices[0].Text, tokens: tokens, prompt: r.Usage.Prompt}, nil
}
