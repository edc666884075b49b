package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
)

// Save writes tokenizer.json and tokenizer_config.json into folder, which exists, as HuggingFace writes
// them, and for BPE also vocab.json and merges.txt. tokenizer_config.json is that of the opened folder
// where there was one.
func (t *Tokenizer) Save(folder string) error {
	tokenizer, err := t.json()
	if err != nil {
		return err
	}
	config := t.config
	if config == nil {
		if config, err = t.configJSON(); err != nil {
			return err
		}
	}
	type part struct {
		name string
		data []byte
	}
	parts := []part{{"tokenizer_config.json", config}, {"tokenizer.json", tokenizer}}
	if t.unigram == nil && !t.rules.characters {
		vocab, err := t.vocabJSON()
		if err != nil {
			return err
		}
		merges := []byte("#version: 0.2\n")
		for _, p := range t.pairs {
			merges = append(merges, p[0]+" "+p[1]+"\n"...)
		}
		parts = append([]part{{"vocab.json", vocab}, {"merges.txt", merges}}, parts...)
	}
	for _, f := range parts {
		if err := atomicfile.Write(filepath.Join(folder, f.name), f.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// vocabJSON returns the tokens in the order of their ids, as every published vocab.json has them.
func (t *Tokenizer) vocabJSON() ([]byte, error) {
	var entries [][]byte
	for id, e := range t.tokens {
		if !e.inModel { // an added token that the model's vocabulary lacks
			continue
		}
		key, err := jsonwords.Marshal(e.token)
		if err != nil {
			return nil, err
		}
		entries = append(entries, fmt.Appendf(nil, "%s:%d", key, id))
	}
	return fmt.Appendf(nil, "{%s}", bytes.Join(entries, []byte(","))), nil
}

// json returns tokenizer.json: what was read of it, with the added tokens and, of BPE, the model written anew.
func (t *Tokenizer) json() ([]byte, error) {
	f := t.spelled
	f.Version, f.Truncation, f.Padding = "1.0", nil, nil
	f.AddedTokens = append([]Added{}, t.Added()...)
	if t.unigram != nil {
		return jsonwords.Marshal(f)
	}
	var err error
	if typeOf(f.PostProcessor) == "" && !t.rules.characters {
		if f.PostProcessor, err = jsonwords.Marshal(t.templateJSON()); err != nil {
			return nil, err
		}
	}
	if typeOf(f.Decoder) == "" {
		f.Decoder = byteLevel(false, false)
	}
	vocab, err := t.vocabJSON()
	if err != nil {
		return nil, err
	}
	var merges any = list.Map(t.pairs, func(p [2]string) string { return p[0] + " " + p[1] })
	if t.rules.characters { // a token may hold a space
		merges = t.pairs
	}
	f.Model, err = jsonwords.Marshal(struct {
		Type         string          `json:"type"`
		Dropout      *float64        `json:"dropout"`
		Unk          *string         `json:"unk_token"`
		Prefix       string          `json:"continuing_subword_prefix"`
		Suffix       string          `json:"end_of_word_suffix"`
		FuseUnk      bool            `json:"fuse_unk"`
		ByteFallback bool            `json:"byte_fallback"`
		IgnoreMerges bool            `json:"ignore_merges"`
		Vocab        json.RawMessage `json:"vocab"`
		Merges       any             `json:"merges"`
	}{Type: "BPE", Unk: t.rules.unk, Suffix: t.rules.suffix, FuseUnk: t.rules.fuseUnk, ByteFallback: t.rules.characters,
		IgnoreMerges: t.rules.ignoreMerges, Vocab: vocab, Merges: merges})
	if err != nil {
		return nil, err
	}
	return jsonwords.Marshal(f)
}

// configJSON returns the tokenizer_config.json of a tokenizer that was not opened from a folder. The
// end of a turn is <|im_end|> and the padding <|endoftext|>, or </s> and <pad>, where the tokenizer has
// them. Where a template or Unigram says more than the class of Qwen2 or GPT-2, tokenizer.json alone
// decides (PreTrainedTokenizerFast).
func (t *Tokenizer) configJSON() ([]byte, error) {
	type flags struct {
		Content    string `json:"content"`
		LStrip     bool   `json:"lstrip"`
		Normalized bool   `json:"normalized"`
		RStrip     bool   `json:"rstrip"`
		SingleWord bool   `json:"single_word"`
		Special    bool   `json:"special"`
	}
	decoder := map[string]flags{}
	special := []string{}
	for _, a := range t.Added() {
		decoder[fmt.Sprint(a.ID)] = flags{a.Content, a.LStrip, a.Normalized, a.RStrip, a.SingleWord, a.Special}
		if a.Special && !slices.Contains([]string{"<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>"}, a.Content) {
			special = append(special, a.Content)
		}
	}
	token := func(names ...string) any {
		for _, name := range names {
			if _, ok := t.ids[name]; ok {
				return name
			}
		}
		return nil
	}
	class := "PreTrainedTokenizerFast"
	if r := t.rules; t.unigram == nil && !r.characters && !r.digits && len(t.wrap.before)+len(t.wrap.after) == 0 {
		switch r.split {
		case Qwen2:
			class = "Qwen2Tokenizer"
		case GPT2:
			class = "GPT2Tokenizer"
		}
	}
	return jsonwords.Marshal(map[string]any{
		"tokenizer_class": class, "add_bos_token": false, "add_prefix_space": t.rules.prefixSpace, "added_tokens_decoder": decoder,
		"additional_special_tokens": special, "bos_token": token("<s>"), "eos_token": token("<|im_end|>", "<|endoftext|>", "</s>"),
		"pad_token": token("<|endoftext|>", "<pad>"), "unk_token": token("<unk>"), "mask_token": token("<mask>"),
		"clean_up_tokenization_spaces": t.rules.cleanUp,
		"errors":                       "replace", "model_max_length": 131072, "split_special_tokens": false,
	})
}
