package processor

import (
	"fulcrum/internal/chat"
	"fulcrum/internal/tokenizer"
	"fulcrum/selector/vl/pixels"
)

// builtinTemplate is Qwen2.5-VL's template without the default system message: a model made from random
// weights has no habit to keep, and each token of a prompt costs.
const builtinTemplate = `{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% elif content['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// specials are the added tokens of a built-in vocabulary, in order; the first ends texts, the third turns.
func specials() []string {
	return []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"}
}

// Builtin returns the processor of a model made from random weights: a byte-level BPE of at most size tokens
// trained on corpus, to which the special tokens are added, and a short chat template.
func Builtin(corpus []string, size int, config pixels.Config) (*Processor, error) {
	vocab, merges := tokenizer.Train(append([]string{"user\n", "assistant\n", "system\n"}, corpus...), size)
	var added []tokenizer.Added
	for i, text := range specials() {
		added = append(added, tokenizer.Added{ID: len(vocab) + i, Content: text, Special: true})
	}
	tok, err := tokenizer.New(vocab, merges, added)
	if err != nil {
		return nil, err
	}
	template, err := chat.Parse(builtinTemplate)
	if err != nil {
		return nil, err
	}
	id := func(i int) int64 { return int64(added[i].ID) }
	return New(tok, template, &config, IDs{EOS: []int64{id(2), id(0)}, Pad: id(0), VisionStart: id(3), VisionEnd: id(4), ImagePad: id(6), VideoPad: id(7)})
}

// Limit bounds the pixels of an image in place of the folder's preprocessor_config.json; nil keeps a bound.
func (p *Processor) Limit(minPixels, maxPixels *int) error {
	if p.pixels == nil || minPixels == nil && maxPixels == nil {
		return nil
	}
	c := *p.pixels
	if minPixels != nil {
		c.MinPixels = *minPixels
	}
	if maxPixels != nil {
		c.MaxPixels = *maxPixels
	}
	p.pixels = &c
	return c.Validate()
}
