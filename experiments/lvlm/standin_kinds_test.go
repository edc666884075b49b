package lvlm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"fulcrum/internal/chat"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
)

// Faults lists the faults that a stand-in of a kind can have.
func Faults(kind string) []string {
	lies := []string{"no log-probabilities", "all zeros", "cut prompts", "shifted template", "off by one", "cache-order effects", "noise",
		"refuses to score", "the likeliest token's", "base 10", "base 2 of scores", "truncated JSON", "an endless answer", "endless generation"}
	if kind != "sglang" {
		lies = append(lies, "another model")
	}
	if kind == "completions" {
		return lies
	}
	return append(lies, "dropped images")
}

// Occasional returns what a stand-in can get wrong every so often: what a probe at rest may not see.
func Occasional() []string {
	return []string{"another request's numbers", "-1e30 now and then", "0.0 now and then", "a tenth of a nat of noise",
		"another request's answers"}
}

// vllm is POST /v1/chat/completions.
func (s *Server) vllm(r request) (any, error) {
	text, urls, err := s.render(r)
	if err != nil {
		return nil, err
	}
	score := r.PromptLogProbs != nil
	if score && s.Lie == "refuses to score" {
		return nil, refusal{http.StatusBadRequest, "prompt_logprobs is not available on this server"}
	}
	if score && (*r.PromptLogProbs < 0 || *r.PromptLogProbs > 20) {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("Requested prompt logprobs of %d, which is greater than max allowed: 20",
			*r.PromptLogProbs)}
	}
	a, err := s.read(text, urls, score)
	if err != nil {
		return nil, err
	}
	if !score && r.Repetition != 1 {
		s.penalise()
	}
	ids, rows := s.mixed(s.generate(a, option.Or(r.MaxTokens, 16)))
	choice := map[string]any{"index": 0, "message": map[string]any{"role": "assistant", "content": s.text(ids)}, "finish_reason": "stop"}
	reply := map[string]any{"object": "chat.completion", "model": s.name(), "choices": []any{choice}, "system_fingerprint": "fp_toy",
		"usage": map[string]any{"prompt_tokens": len(a.ids), "completion_tokens": len(ids)}, "prompt_logprobs": nil}
	if s.Lie == "another model" {
		reply["model"] = "somebody-else"
	}
	if r.ReturnIDs {
		reply["prompt_token_ids"], choice["token_ids"] = a.told, ids
	}
	if r.LogProbs == true {
		choice["logprobs"] = map[string]any{"content": s.chatLogProbs(ids, rows, r)}
	}
	if score && s.Lie != "no log-probabilities" {
		list := []any{nil}
		for _, e := range s.scores(a) {
			own := map[string]any{fmt.Sprint(e.id): map[string]any{"logprob": e.logProb, "rank": e.rank, "decoded_token": s.Model.Text(e.id)}}
			if s.Lie == "the likeliest token's" {
				clear(own)
			}
			own[fmt.Sprint(e.best)] = map[string]any{"logprob": e.bestLog, "rank": 1, "decoded_token": s.Model.Text(e.best)}
			if e.best == e.id {
				own[fmt.Sprint(e.best)] = map[string]any{"logprob": e.logProb, "rank": 1, "decoded_token": s.Model.Text(e.best)}
			}
			list = append(list, own)
		}
		reply["prompt_logprobs"] = list
	}
	return reply, nil
}

func (s *Server) penalise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Penalised++
}

// teacher is POST /v1/chat/completions/render and /inference/v1/generate.
func (s *Server) teacher(path string, r request) (any, error) {
	if path != "/inference/v1/generate" {
		text, urls, err := s.render(r)
		if err != nil {
			return nil, err
		}
		a, err := s.read(text, urls, true)
		return map[string]any{"token_ids": a.ids, "features": map[string]any{"kwargs_data": a.images}, "model": s.name()}, err
	}
	if want := len(r.TokenIDs) - 1 - r.Sampling.Start; len(r.Sampling.IDs) != want {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("prompt_logprob_token_ids has %d rows, want %d", len(r.Sampling.IDs), want)}
	}
	if s.Lie == "teacher of another prompt" {
		r.TokenIDs[0]++
	}
	rows := s.Model.LogProbs(r.TokenIDs, r.Features.Images, r.Sampling.Start)
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 1), }", len(r.Sampling.IDs))
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	npy := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	npy = append(npy, header...)
	for i, ids := range r.Sampling.IDs {
		npy = binary.LittleEndian.AppendUint32(npy, math.Float32bits(float32(rows[i][ids[0]])))
	}
	return map[string]any{"choices": []any{}, "prompt_token_id_logprobs": npy}, nil
}

// render applies the chat template as transformers does, and returns the images' addresses.
func (s *Server) render(r request) (text string, urls []string, err error) {
	generation := r.Generation == nil || *r.Generation
	if generation && r.Continue {
		return "", nil, refusal{http.StatusBadRequest, "Cannot set both `continue_final_message` and `add_generation_prompt` to True."}
	}
	if r.ChatTemplate != nil {
		return "", nil, refusal{http.StatusBadRequest, "Chat template is passed with request, but --trust-request-chat-template is not set. " +
			"Refused request with untrusted chat template."}
	}
	template := s.Template
	if template == nil {
		template = chat.QwenVL()
	}
	var wire []struct {
		Role    string
		Content any
	}
	if err := jsonwords.Unmarshal(r.Messages, &wire); err != nil {
		return "", nil, refusal{http.StatusBadRequest, err.Error()}
	}
	var msgs []chat.Message
	for _, m := range wire {
		msg := chat.Message{Role: m.Role}
		parts, _ := m.Content.([]any)
		msg.Text, _ = m.Content.(string)
		for _, p := range parts {
			part, _ := p.(map[string]any)
			switch part["type"] {
			case "text":
				t, _ := part["text"].(string)
				msg.Parts = append(msg.Parts, chat.Part{Type: chat.Text, Text: t})
			case "image_url":
				image, _ := part["image_url"].(map[string]any)
				url, _ := image["url"].(string)
				urls = append(urls, url)
				msg.Parts = append(msg.Parts, chat.Part{Type: chat.Image, Path: url})
			default:
				return "", nil, refusal{http.StatusBadRequest, fmt.Sprintf("Unknown part type: %v", part["type"])}
			}
		}
		msgs = append(msgs, msg)
	}
	if text, err = template.Render(msgs, chat.RenderOptions{AddGenerationPrompt: generation}); err != nil {
		return "", nil, refusal{http.StatusBadRequest, err.Error()}
	}
	if r.Continue { // what follows the last place of the last message goes
		last := strings.TrimSpace(msgs[len(msgs)-1].Text)
		text = text[:strings.LastIndex(text, last)+len(last)]
		if s.Lie == "shifted template" {
			text += "\n"
		}
	}
	return text, urls, nil
}

// text is what a server shows of generated ids: none of the special tokens, as the model's own tokenizer has them where it says so.
func (s *Server) text(ids []int) string {
	if m, ok := s.Model.(interface{ Said(ids []int) string }); ok {
		return m.Said(ids)
	}
	var b strings.Builder
	for _, id := range ids {
		if t := s.Model.Text(id); !strings.HasPrefix(t, "<|") {
			b.WriteString(t)
		}
	}
	return b.String()
}

// best returns the n likeliest ids of a row.
func best(row []float64, n int) []int {
	ids := make([]int, len(row))
	for i := range ids {
		ids[i] = i
	}
	slices.SortFunc(ids, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
	return ids[:min(n, len(ids))]
}

func (s *Server) chatLogProbs(ids []int, rows [][]float64, r request) []any {
	token := func(id int) string {
		if r.TokensAsIDs {
			return fmt.Sprintf("token_id:%d", id)
		}
		return s.Model.Text(id)
	}
	var out []any
	for i, id := range ids {
		var top []any
		for _, other := range best(rows[i], r.TopLogProbs) {
			top = append(top, map[string]any{"token": token(other), "logprob": rows[i][other], "bytes": nil})
		}
		out = append(out, map[string]any{"token": token(id), "logprob": rows[i][id], "bytes": nil, "top_logprobs": top})
	}
	return out
}

// sglang is POST /generate.
func (s *Server) sglang(r request) (any, error) {
	score := r.ReturnLogProb && r.Start != nil && *r.Start >= 0
	if score && s.Lie == "refuses to score" {
		return nil, refusal{http.StatusBadRequest, "return_logprob is not available on this server"}
	}
	if score && s.Lie == "shifted template" {
		r.Text += "\n"
	}
	a, err := s.read(r.Text, r.Images, score)
	if err != nil {
		return nil, err
	}
	if score && *r.Start >= len(a.ids) {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("logprob_start_len (%d) is higher than the number of input tokens (%d)", *r.Start,
			len(a.ids))}
	}
	if !score && r.Sampling.Repetition != 1 {
		s.penalise()
	}
	ids, rows := s.mixed(s.generate(a, r.Sampling.MaxNewTokens))
	triple := func(logProb any, id int) []any {
		if r.ReturnText {
			return []any{logProb, id, s.Model.Text(id)}
		}
		return []any{logProb, id, nil}
	}
	meta := map[string]any{"prompt_tokens": len(a.ids), "completion_tokens": len(ids), "finish_reason": map[string]any{"type": "length"}}
	if score && s.Lie != "no log-probabilities" {
		pad, _ := s.Model.ImageToken(nil)
		seen := func(id int) int { // ids of images are none of the vocabulary's and show as 0
			if id == pad {
				return 0
			}
			return id
		}
		input := []any{triple(nil, seen(a.ids[*r.Start]))}
		for _, e := range s.scores(a)[*r.Start:] {
			input = append(input, triple(e.logProb, seen(e.id)))
		}
		meta["input_token_logprobs"] = input
	}
	if r.ReturnLogProb {
		output, tops := []any{}, []any{}
		for i, id := range ids {
			output = append(output, triple(rows[i][id], id))
			var top []any
			for _, other := range best(rows[i], r.TopNum) {
				top = append(top, triple(rows[i][other], other))
			}
			tops = append(tops, top)
		}
		meta["output_token_logprobs"] = output
		if r.TopNum > 0 {
			meta["output_top_logprobs"] = tops
		}
	}
	return map[string]any{"text": s.text(ids), "output_ids": ids, "meta_info": meta}, nil
}

// completions is POST /v1/completions.
func (s *Server) completions(r request) (any, error) {
	for _, name := range s.Strict {
		if map[string]int{"repetition_penalty": r.Repetition, "repeat_penalty": r.Repeat}[name] != 0 {
			return nil, refusal{http.StatusUnprocessableEntity, fmt.Sprintf("[{'type': 'extra_forbidden', 'loc': ('body', '%s')}]", name)}
		}
	}
	if r.Echo && s.Lie == "refuses to score" {
		return nil, refusal{http.StatusBadRequest, "Only no echo is supported"}
	}
	if r.Echo && s.Lie == "shifted template" {
		r.Prompt += " "
	}
	if !r.Echo && r.Repetition != 1 {
		s.penalise()
	}
	if s.Begins == "always" || s.Begins == "unless told" && (r.Special == nil || *r.Special) {
		r.Prompt = "<|im_start|>" + r.Prompt
	}
	a, err := s.read(r.Prompt, nil, r.Echo)
	if err != nil {
		return nil, err
	}
	most := option.Or(r.MaxTokens, 16)
	if most == 0 {
		most = 200 // as llama-cpp-python: no bound
	}
	ids, rows := s.mixed(s.generate(a, most))
	if !r.Echo && s.Lie != "endless generation" {
		for i := range ids {
			if slices.Contains(r.Stop, s.Model.Text(ids[i])) {
				ids, rows = ids[:i], rows[:i]
				break
			}
		}
	}
	var tokens []string
	var logProbs, tops []any
	text := s.text(ids)
	if r.Echo {
		text = r.Prompt + text
		tokens, logProbs, tops = append(tokens, s.Model.Text(a.ids[0])), append(logProbs, nil), append(tops, nil)
		for _, e := range s.scores(a) {
			tokens, logProbs = append(tokens, s.Model.Text(e.id)), append(logProbs, e.logProb)
			tops = append(tops, map[string]any{s.Model.Text(e.best): e.bestLog})
		}
	}
	for i, id := range ids {
		tokens, logProbs = append(tokens, s.Model.Text(id)), append(logProbs, rows[i][id])
		top := map[string]any{}
		n, _ := r.LogProbs.(float64)
		for _, other := range best(rows[i], int(n)) {
			top[s.Model.Text(other)] = rows[i][other]
		}
		tops = append(tops, top)
	}
	choice := map[string]any{"index": 0, "text": text, "finish_reason": "length", "logprobs": nil}
	if r.LogProbs != nil && s.Lie != "no log-probabilities" {
		choice["logprobs"] = map[string]any{"tokens": tokens, "token_logprobs": logProbs, "top_logprobs": tops}
	}
	reply := map[string]any{"object": "text_completion", "model": s.name(), "choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": len(a.ids), "completion_tokens": len(ids)}}
	if s.Lie == "another model" {
		reply["model"] = "somebody-else"
	}
	return reply, nil
}
