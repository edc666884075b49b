package lvlm

import (
	"errors"
	"fmt"

	"fulcrum/internal/chat"
	"fulcrum/internal/jsonwords"
)

// sglang is SGLang's own /generate. The template is applied here.
type sglang struct{ *server }

type sglangBody struct {
	Text          string         `json:"text"`
	Images        []string       `json:"image_data,omitempty"`
	Sampling      map[string]int `json:"sampling_params"`
	ReturnLogProb bool           `json:"return_logprob"`
	Start         int            `json:"logprob_start_len"`
	Top           int            `json:"top_logprobs_num,omitempty"`
	ReturnText    bool           `json:"return_text_in_logprobs"`
}

func (s sglang) body(p Prompt) (sglangBody, error) {
	var b sglangBody
	text, err := s.rendering.whole(p)
	if err != nil {
		return b, err
	}
	for _, m := range Messages(p) {
		for _, part := range m.Parts {
			if part.Type == chat.Image {
				url, err := s.pictures.URL(part.Path)
				if err != nil {
					return b, err
				}
				b.Images = append(b.Images, url)
			}
		}
	}
	b.Text, b.ReturnLogProb, b.ReturnText = text, true, true
	return b, nil
}

// scoring asks for the log-probabilities of the prompt from its first token on: where the answer begins among the expanded
// tokens of the images is the server's knowledge. With our tokenizer it begins behind as many tokens as the text before it has.
func (s sglang) scoring(p Prompt) (string, any, error) {
	b, err := s.body(p)
	b.Sampling = map[string]int{"max_new_tokens": 0, "temperature": 0}
	if s.rendering.tokens != nil && s.first != nil && err == nil { // the probe reads whole prompts
		var ids []int64
		var n int
		ids, n, err = s.rendering.expected(p)
		b.Start = len(ids) - n - 1
	}
	return "/generate", b, err
}

func (s sglang) scoringText(p Prompt, text string) (string, any, error) {
	b, err := s.body(p)
	b.Text, b.Sampling = text, map[string]int{"max_new_tokens": 0, "temperature": 0}
	return "/generate", b, err
}

func (s sglang) answering(p Prompt, top int) (string, any, error) {
	b, err := s.body(p)
	b.Sampling, b.Start, b.Top = map[string]int{"max_new_tokens": s.opt.MaxNewTokens, "temperature": 0, "repetition_penalty": 1}, -1, top
	return "/generate", b, err
}

// sglangToken is [log-probability or null, id, text or null].
type sglangToken [3]any

func (t sglangToken) told() (told, error) {
	out := told{id: -1}
	if v, ok := t[0].(float64); ok {
		out.logProb = &v
	}
	id, ok := t[1].(float64)
	if !ok {
		return out, fmt.Errorf("its log-probabilities have entries %v: want [log-probability, id, text]", t)
	}
	out.id = int(id)
	out.text, _ = t[2].(string) // null: not told
	return out, nil
}

type sglangReply struct {
	Text string `json:"text"`
	Meta struct {
		PromptTokens int             `json:"prompt_tokens"`
		Input        []sglangToken   `json:"input_token_logprobs"`
		Output       []sglangToken   `json:"output_token_logprobs"`
		OutputTop    [][]sglangToken `json:"output_top_logprobs"`
	} `json:"meta_info"`
}

func tokensOf(entries []sglangToken) (out []told, err error) {
	for _, e := range entries {
		t, err := e.told()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func (s sglang) scored(reply []byte, _ int) (echo, error) {
	var r sglangReply
	if err := jsonwords.Unmarshal(reply, &r); err != nil {
		return echo{}, fmt.Errorf("its answer is no JSON of /generate: %w", err)
	}
	if len(r.Meta.Input) == 0 {
		return echo{}, errors.New("it gives no log-probabilities of the prompt (meta_info.input_token_logprobs): it cannot score")
	}
	tokens, err := tokensOf(r.Meta.Input)
	if err == nil && len(tokens) > r.Meta.PromptTokens {
		err = fmt.Errorf("it tells %d tokens of a prompt of %d", len(tokens), r.Meta.PromptTokens)
	}
	e := echo{tokens: tokens, length: r.Meta.PromptTokens}
	if err == nil && len(tokens) == e.length {
		e.first = &tokens[0]
	}
	return e, err
}

func (s sglang) answered(reply []byte) (greedy, error) {
	var r sglangReply
	if err := jsonwords.Unmarshal(reply, &r); err != nil {
		return greedy{}, fmt.Errorf("its answer is no JSON of /generate: %w", err)
	}
	tokens, err := tokensOf(r.Meta.Output)
	for i := 0; i < min(len(tokens), len(r.Meta.OutputTop)) && err == nil; i++ {
		tokens[i].top, err = tokensOf(r.Meta.OutputTop[i])
	}
	return greedy{raw: r.Text, tokens: tokens, prompt: r.Meta.PromptTokens}, err
}
