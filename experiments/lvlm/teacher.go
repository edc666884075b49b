package lvlm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/tensorfile"
)

// teach scores a prompt by vLLM's scoring of chosen tokens (/inference/v1/generate with prompt_logprob_token_ids): the server
// renders the prompt, then computes the logits of the answer's places alone and tells nothing but their log-probabilities. The
// ids of the answer must be known here, so this needs the model's tokenizer.
func (s *server) teach(ctx context.Context, p Prompt) (echo, error) {
	v := vllm{s}
	ended := p
	ended.Query.Answer += s.rendering.ending
	body, err := v.body(ended)
	if err != nil {
		return echo{}, err
	}
	body.MaxTokens = 1
	rendered, err := s.post(ctx, "/v1/chat/completions/render", body)
	if err != nil {
		return echo{}, err
	}
	ids, answer, err := s.rendering.expected(p)
	if err != nil {
		return echo{}, err
	}
	request := map[string]json.RawMessage{} // with the features of its images
	var prompt struct {
		IDs []int `json:"token_ids"`
	}
	if err := errors.Join(jsonwords.Unmarshal(rendered, &request), jsonwords.Unmarshal(rendered, &prompt)); err != nil {
		return echo{}, fmt.Errorf("/v1/chat/completions/render: %w", err)
	}
	if err := s.rendering.same(ids, prompt.IDs); err != nil {
		return echo{}, err
	}
	rows := list.Map(prompt.IDs[len(prompt.IDs)-answer:], func(id int) [1]int { return [1]int{id} })
	params, err := json.Marshal(map[string]any{"max_tokens": 1, "temperature": 0, "prompt_logprob_token_ids": rows,
		"prompt_logprob_start": len(prompt.IDs) - answer - 1})
	if err != nil {
		return echo{}, err
	}
	request["sampling_params"] = params
	reply, err := s.post(ctx, "/inference/v1/generate", request)
	if err != nil {
		return echo{}, err
	}
	logProbs, err := taught(reply, answer)
	e := echo{ids: prompt.IDs, length: len(prompt.IDs)}
	for i := range logProbs {
		e.tokens = append(e.tokens, told{id: rows[i][0], logProb: &logProbs[i]})
	}
	return e, err
}

// taught reads the log-probabilities [n, 1] of a reply: a float32 array in NumPy's format, in base64 (as encoding/json has bytes).
func taught(reply []byte, n int) ([]float64, error) {
	var r struct {
		Scores []byte `json:"prompt_token_id_logprobs"`
	}
	if err := jsonwords.Unmarshal(reply, &r); err != nil {
		return nil, fmt.Errorf("/inference/v1/generate: %w", err)
	}
	if !bytes.HasPrefix(r.Scores, []byte("\x93NUMPY")) {
		return nil, errors.New("/inference/v1/generate gives no prompt_token_id_logprobs")
	}
	array, err := tensorfile.ParseNPY(r.Scores)
	if err != nil {
		return nil, fmt.Errorf("prompt_token_id_logprobs: %w", err)
	}
	values, err := array.Float64s()
	if err == nil && len(values) != n {
		err = fmt.Errorf("prompt_token_id_logprobs has %d entries, want %d", len(values), n)
	}
	return values, err
}

// findTeacher takes the scoring of chosen tokens where the server offers it and its numbers are those of whole prompts, and notes
// why not where it does not.
func (s *server) findTeacher(ctx context.Context, asked []probed) error {
	if s.opt.Backend != "vllm" {
		return nil
	}
	err := s.tryTeacher(ctx, asked)
	if s.teacher = err == nil; !s.teacher {
		s.notes = append(s.notes, fmt.Sprintf("vllm scores whole prompts, the dearer way, and not the answer's tokens alone: %v", err))
	}
	return ctx.Err()
}

func (s *server) tryTeacher(ctx context.Context, asked []probed) error {
	if s.rendering.tokens == nil || s.rendering.template == nil {
		return errors.New("the ids of answers are not known here: give the model's folder, lvlm.path")
	}
	for _, a := range asked {
		e, err := s.teach(ctx, a.p)
		if err != nil {
			return err
		}
		l, err := s.likelihood(a.p, e)
		if err != nil {
			return err
		}
		if !l.alike(a.l) {
			return fmt.Errorf("/inference/v1/generate gives %.4v where the whole prompt has %.4v (%s)", l.LogProbs, a.l.LogProbs, a.name)
		}
	}
	return nil
}
