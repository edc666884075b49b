package processor

import (
	"fmt"
	"slices"

	"fulcrum/internal/chat"
	"fulcrum/internal/tokenizer"
	"fulcrum/selector/vl/pixels"
)

// addedTokens are the added tokens of Qwen2.5-VL, in the order of their ids; the first special ones are
// left out by Decode(ids, true), the others are plain text with an id of its own.
func addedTokens() (special, plain []string) {
	special = []string{
		"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
		"<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
	}
	plain = []string{
		"<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
	}
	return special, plain
}

// Train returns a processor for a model made from random weights: a vocabulary of at most size tokens
// (the 22 added ones apart) learned from corpus and the words of the chat template, ChatML's template,
// Qwen2.5-VL's special tokens, and the given preprocessing. It depends on its arguments alone.
func Train(corpus []string, size int, config pixels.Config) (*Processor, error) {
	if size < 256 {
		return nil, fmt.Errorf("vocabulary of %d tokens: want 256 at least, one for each byte", size)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	template := chat.ChatML() // a model without habits needs no system message, and each token of a prompt costs
	frame, err := template.Render([]chat.Message{{Role: "user"}}, chat.RenderOptions{AddGenerationPrompt: true})
	if err != nil {
		return nil, err
	}
	special, plain := addedTokens()
	words := append([]string{}, corpus...)
	for _, part := range tokenizer.Cut(frame, special) { // every prompt has them, so they count as often
		words = append(words, slices.Repeat([]string{part}, len(corpus))...)
	}
	vocab, merges := tokenizer.Train(words, size)
	var added []tokenizer.Added
	for _, token := range special {
		added = append(added, tokenizer.Added{ID: len(vocab) + len(added), Content: token, Special: true})
	}
	for _, token := range plain {
		added = append(added, tokenizer.Added{ID: len(vocab) + len(added), Content: token})
	}
	tok, err := tokenizer.New(vocab, merges, added)
	if err != nil {
		return nil, err
	}
	id := func(token string) int64 {
		id, _ := tok.ID(token)
		return id
	}
	return New(tok, template, &config, IDs{
		EOS: []int64{id("<|im_end|>"), id("<|endoftext|>")}, Pad: id("<|endoftext|>"),
		ImagePad: id("<|image_pad|>"), VideoPad: id("<|video_pad|>"), VisionPad: id("<|vision_pad|>"),
		VisionStart: id("<|vision_start|>"), VisionEnd: id("<|vision_end|>"),
	})
}
