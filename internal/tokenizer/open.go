package tokenizer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
)

// Open reads the tokenizer of a HuggingFace folder: tokenizer.json, or else vocab.json and merges.txt
// with the added tokens of tokenizer_config.json or added_tokens.json. What this package cannot do
// (another kind of model, normalizer, rule) is an error that names it, never a near miss.
func Open(folder string) (*Tokenizer, error) {
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such folder", folder)
	}
	config, err := regular.ReadOptional(filepath.Join(folder, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	var t *Tokenizer
	path := filepath.Join(folder, "tokenizer.json")
	data, err := regular.ReadOptional(path)
	switch {
	case err != nil:
		return nil, err
	case data != nil:
		t, err = parse(data)
	default:
		t, err = openParts(folder, config)
		path = folder
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if config != nil {
		var c struct {
			CleanUp    bool `json:"clean_up_tokenization_spaces"`
			CleanUpBPE bool `json:"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"`
		}
		if err := jsonwords.Unmarshal(config, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(folder, "tokenizer_config.json"), err)
		}
		t.rules.cleanUp = c.CleanUp && (t.unigram != nil || c.CleanUpBPE) // as transformers 5: BPE keeps the spaces of a text
	}
	t.config = config
	return t, nil
}

// file is tokenizer.json. The parts that have many kinds stay raw until their type is known.
type file struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []Added         `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"` // megabytes: scanned once
}

func parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := jsonwords.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	t, err := parseModel(f)
	if err != nil {
		return nil, err
	}
	t.wrap, err = readTemplate(f.PostProcessor)
	return t, err
}

// parseModel reads all but the special tokens around a text.
func parseModel(f file) (*Tokenizer, error) {
	if kind := typeOf(f.Model); kind == "Unigram" {
		return parseUnigram(f)
	}
	var m struct {
		Type         *string         `json:"type"` // absent from old files, whose model is BPE
		Dropout      float64         `json:"dropout"`
		Unk          *string         `json:"unk_token"`
		FuseUnk      bool            `json:"fuse_unk"`
		Prefix       string          `json:"continuing_subword_prefix"`
		Suffix       string          `json:"end_of_word_suffix"`
		ByteFallback bool            `json:"byte_fallback"`
		IgnoreMerges bool            `json:"ignore_merges"`
		Vocab        map[string]int  `json:"vocab"`
		Merges       json.RawMessage `json:"merges"`
	}
	if err := jsonwords.Unmarshal(f.Model, &m); err != nil {
		if kind := typeOf(f.Model); kind != "BPE" { // whose vocabulary may have another shape
			return nil, unsupported("model", kind, "BPE", "Unigram")
		}
		return nil, fmt.Errorf("model: %w", err)
	}
	switch {
	case m.Type == nil && m.Merges == nil:
		return nil, unsupported("model", "without a type", "BPE", "Unigram")
	case m.Type != nil && *m.Type != "BPE":
		return nil, unsupported("model", *m.Type, "BPE", "Unigram")
	case m.Dropout != 0:
		return nil, unsupported("model.dropout", strconv.FormatFloat(m.Dropout, 'g', -1, 64), "none")
	case m.Prefix != "":
		return nil, unsupported("model.continuing_subword_prefix", m.Prefix, "none")
	}
	read := readRules
	if m.ByteFallback {
		read = readCharacters
	}
	r, err := read(f)
	if err != nil {
		return nil, err
	}
	if kind := typeOf(f.Decoder); !m.ByteFallback && kind != "" && kind != "ByteLevel" {
		return nil, unsupported("decoder", kind, "ByteLevel")
	}
	if m.Suffix != "" && r.split != CLIP {
		return nil, unsupported("model.end_of_word_suffix", m.Suffix, "none")
	}
	r.ignoreMerges, r.suffix, r.unk, r.fuseUnk = m.IgnoreMerges, m.Suffix, m.Unk, m.FuseUnk
	r.lossy = m.Unk == nil && !m.ByteFallback // as the tokenizers library
	pairs, err := parseMerges(m.Merges)
	if err != nil {
		return nil, err
	}
	t, err := build(m.Vocab, pairs, f.AddedTokens, r)
	if err == nil {
		t.spelled, t.spelled.Model = f, nil
	}
	return t, err
}

// readRules reads how byte-level BPE cuts text into pieces.
func readRules(f file) (r rules, err error) {
	if r.normalize, err = readNormalizers(f.Normalizer); err == nil {
		err = r.readPreTokenizer(f.PreTokenizer)
	}
	return r, err
}

// buildAs returns a byte-level BPE tokenizer with the rules that a file spells.
func buildAs(f file, vocab map[string]int, pairs [][2]string, added []Added) (*Tokenizer, error) {
	r, err := readRules(f)
	if err != nil {
		return nil, err
	}
	if r.split == CLIP {
		r.suffix = "</w>"
	}
	t, err := build(vocab, pairs, added, r)
	if err == nil {
		t.spelled = f
	}
	return t, err
}

// qwen2, gpt2 and clip spell the rules of models whose folders have no tokenizer.json.
func qwen2() file {
	return file{Normalizer: json.RawMessage(`{"type":"NFC"}`), PreTokenizer: splitFirst(qwen2Pattern, "Isolated", false, byteLevel(false, false))}
}

func gpt2(prefixSpace bool) file { return file{PreTokenizer: byteLevel(prefixSpace, true)} }

func clip() file {
	return file{Normalizer: json.RawMessage(`{"normalizers":[{"type":"NFC"},{"content":" ","pattern":{"Regex":"\\s+"},"type":"Replace"},` +
		`{"type":"Lowercase"}],"type":"Sequence"}`), PreTokenizer: splitFirst(clipPattern, "Removed", true, byteLevel(false, true))}
}

func byteLevel(prefixSpace, useRegex bool) json.RawMessage {
	return fmt.Appendf(nil, `{"add_prefix_space":%t,"trim_offsets":false,"type":"ByteLevel","use_regex":%t}`, prefixSpace, useRegex)
}

func splitFirst(pattern, behavior string, invert bool, then json.RawMessage) json.RawMessage {
	regex, _ := jsonwords.Marshal(pattern) // a text always marshals
	return fmt.Appendf(nil, `{"pretokenizers":[{"behavior":%q,"invert":%t,"pattern":{"Regex":%s},"type":"Split"},%s],"type":"Sequence"}`,
		behavior, invert, regex, then)
}

// parseMerges reads both spellings: ["a b", …] and, since 2024, [["a", "b"], …].
func parseMerges(raw json.RawMessage) ([][2]string, error) {
	var pairs [][2]string
	if json.Unmarshal(raw, &pairs) == nil {
		return pairs, nil
	}
	var lines []string
	if err := jsonwords.Unmarshal(raw, &lines); err != nil {
		return nil, fmt.Errorf("model.merges: want a list of \"left right\" or of [left, right]: %w", err)
	}
	pairs = make([][2]string, len(lines))
	for i, line := range lines {
		var ok bool
		if pairs[i], ok = cutMerge(line); !ok {
			return nil, fmt.Errorf("model.merges: merge %d is %q, want two tokens and one space", i+1, line)
		}
	}
	return pairs, nil
}

// cutMerge reads a merge as text: two tokens and one space.
func cutMerge(line string) (pair [2]string, ok bool) {
	left, right, _ := strings.Cut(line, " ")
	return [2]string{left, right}, left != "" && right != "" && !strings.Contains(right, " ")
}

// readPreTokenizer accepts Split with a known pattern followed by ByteLevel without its own pattern, and ByteLevel with it (GPT-2);
// before either, Digits that cuts out every digit (SmolLM2).
func (r *rules) readPreTokenizer(raw json.RawMessage) error {
	parts, err := sequence(raw, "pretokenizers")
	if err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	split, byteLevel := false, false
	for _, raw := range parts {
		var p struct {
			Type     string
			Pattern  struct{ Regex, String string }
			Behavior string
			Invert   bool
			Prefix   bool  `json:"add_prefix_space"`
			UseRegex *bool `json:"use_regex"`
			EachOne  bool  `json:"individual_digits"`
		}
		if err := jsonwords.Unmarshal(raw, &p); err != nil {
			return fmt.Errorf("pre_tokenizer: %w", err)
		}
		switch {
		case p.Type == "Digits" && !r.digits && !split && !byteLevel:
			if r.digits = p.EachOne; !p.EachOne {
				return unsupported("pre_tokenizer Digits", "individual_digits false", "true")
			}
		case p.Type == "Split" && !split && !byteLevel:
			pattern := cmp.Or(p.Pattern.Regex, p.Pattern.String)
			rule, ok := patterns[pattern]
			clip := rule == CLIP // keeps what matches, the others cut there: both are the pieces that match
			if !ok || p.Pattern.Regex == "" || p.Invert != clip || p.Behavior != map[bool]string{false: "Isolated", true: "Removed"}[clip] {
				return unsupported("pre_tokenizer Split", fmt.Sprintf("%s (behavior %s, invert %t)", pattern, p.Behavior, p.Invert),
					"the pattern of Qwen2, Llama 3 or GPT-2, Isolated", "that of CLIP, Removed and inverted")
			}
			r.split, split = rule, true
		case p.Type == "ByteLevel" && !byteLevel:
			byteLevel, r.prefixSpace = true, p.Prefix
			ownRule := p.UseRegex == nil || *p.UseRegex
			if ownRule == split && r.split != CLIP { // whose pieces GPT-2's rule does not cut
				return unsupported("pre_tokenizer ByteLevel", fmt.Sprintf("use_regex %t", ownRule), "true alone, false after a Split")
			}
			if ownRule && !split {
				r.split = GPT2
			}
		default:
			return unsupported("pre_tokenizer", p.Type, "Split then ByteLevel", "ByteLevel", "Digits before them", "Metaspace with byte_fallback")
		}
	}
	if !byteLevel {
		return unsupported("pre_tokenizer", "none", "Split then ByteLevel", "ByteLevel", "Digits before them", "none with byte_fallback")
	}
	if r.prefixSpace && (split || r.digits) {
		return unsupported("pre_tokenizer", "add_prefix_space after Split or Digits", "add_prefix_space with ByteLevel alone")
	}
	return nil
}

// sequence returns the members of a Sequence, the one object, or nothing for null.
func sequence(raw json.RawMessage, key string) ([]json.RawMessage, error) {
	switch typeOf(raw) {
	case "":
		return nil, nil
	case "Sequence":
		var s map[string]json.RawMessage
		if err := jsonwords.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		var parts []json.RawMessage
		err := jsonwords.Unmarshal(s[key], &parts)
		return parts, err
	}
	return []json.RawMessage{raw}, nil
}

// typeOf returns the "type" of an object of tokenizer.json, "" for null.
func typeOf(raw json.RawMessage) string {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return ""
	}
	var object struct {
		Type *string `json:"type"`
	}
	if err := jsonwords.Unmarshal(raw, &object); err != nil || object.Type == nil {
		return "without a type"
	}
	return *object.Type
}

func unsupported(what, got string, want ...string) error {
	return fmt.Errorf("%s %q is not supported (supported: %s)", what, got, strings.Join(want, ", "))
}

// openParts reads the older layout.
func openParts(folder string, config []byte) (*Tokenizer, error) {
	data, err := regular.ReadOptional(filepath.Join(folder, "vocab.json"))
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, errors.New("no tokenizer: want tokenizer.json, or vocab.json and merges.txt (a spiece.model or tokenizer.model alone: " +
			"AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes tokenizer.json)")
	}
	var vocab map[string]int
	if err := jsonwords.Unmarshal(data, &vocab); err != nil {
		return nil, fmt.Errorf("vocab.json: %w", err)
	}
	pairs, err := readMerges(filepath.Join(folder, "merges.txt"))
	if err != nil {
		return nil, err
	}
	var c struct {
		Class       string           `json:"tokenizer_class"`
		PrefixSpace bool             `json:"add_prefix_space"`
		Added       map[string]Added `json:"added_tokens_decoder"`
	}
	if config != nil {
		if err := jsonwords.Unmarshal(config, &c); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	var style file
	_, start := vocab["<s>"]
	_, end := vocab["</s>"]
	roberta := false // RoBERTa's special tokens, BART's too: their oldest folders name no class
	switch class := strings.TrimSuffix(c.Class, "Fast"); class {
	case "BartTokenizer", "RobertaTokenizer", "":
		if roberta = start && end; roberta {
			style = gpt2(c.PrefixSpace)
			break
		}
		if class != "" {
			return nil, fmt.Errorf("vocab.json lacks <s> or </s>, which %s puts around a text", class)
		}
		fallthrough
	case "Qwen2Tokenizer": // and hand-made folders without a class: the newer rule
		style = qwen2()
	case "GPT2Tokenizer":
		style = gpt2(c.PrefixSpace)
	case "CLIPTokenizer":
		return clipParts(vocab, pairs)
	default:
		return nil, unsupported("tokenizer_class", c.Class, "Qwen2Tokenizer", "GPT2Tokenizer", "BartTokenizer", "RobertaTokenizer",
			"CLIPTokenizer")
	}
	var added []Added
	for _, key := range slices.Sorted(maps.Keys(c.Added)) {
		a := c.Added[key]
		if a.ID, err = strconv.Atoi(key); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder has the key %q, want an id", key)
		}
		added = append(added, a)
	}
	if c.Added == nil {
		if added, err = readAddedTokens(filepath.Join(folder, "added_tokens.json")); err != nil {
			return nil, err
		}
	}
	if c.Added == nil && roberta {
		for _, token := range []string{"<s>", "<pad>", "</s>", "<unk>", "<mask>"} {
			if id, ok := vocab[token]; ok {
				added = append(added, Added{ID: id, Content: token, Special: true, LStrip: token == "<mask>"})
			}
		}
	}
	t, err := buildAs(style, vocab, pairs, added)
	if err == nil && roberta {
		t.wrap = template{before: []int64{int64(vocab["<s>"])}, after: []int64{int64(vocab["</s>"])}}
	}
	return t, err
}

// clipParts returns CLIP's tokenizer, whose special tokens are part of its vocabulary.
func clipParts(vocab map[string]int, pairs [][2]string) (*Tokenizer, error) {
	start, okS := vocab["<|startoftext|>"]
	end, okE := vocab["<|endoftext|>"]
	if !okS || !okE {
		return nil, errors.New("vocab.json lacks <|startoftext|> or <|endoftext|>, which CLIPTokenizer puts around a text")
	}
	added := []Added{{ID: start, Content: "<|startoftext|>", Special: true}, {ID: end, Content: "<|endoftext|>", Special: true}}
	t, err := buildAs(clip(), vocab, pairs, added)
	if err == nil {
		t.wrap = template{before: []int64{int64(start)}, after: []int64{int64(end)}}
	}
	return t, err
}

// readAddedTokens reads added_tokens.json, token → id: the oldest layout, which says nothing of flags.
// Tokens in <| |> are taken as special.
func readAddedTokens(path string) ([]Added, error) {
	data, err := regular.ReadOptional(path)
	if data == nil || err != nil {
		return nil, err
	}
	var ids map[string]int
	if err := jsonwords.Unmarshal(data, &ids); err != nil {
		return nil, fmt.Errorf("added_tokens.json: %w", err)
	}
	var added []Added
	for _, token := range slices.Sorted(maps.Keys(ids)) {
		special := strings.HasPrefix(token, "<|") && strings.HasSuffix(token, "|>")
		added = append(added, Added{ID: ids[token], Content: token, Special: special})
	}
	return added, nil
}

// readMerges reads merges.txt: one merge a line, lowest rank first, after a line "#version: …".
func readMerges(path string) ([][2]string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var pairs [][2]string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" || n == 1 && strings.HasPrefix(line, "#version") {
			continue
		}
		pair, ok := cutMerge(line)
		if !ok {
			return nil, fmt.Errorf("%s:%d: %q, want two tokens and one space", filepath.Base(path), n, line)
		}
		pairs = append(pairs, pair)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return pairs, nil
}
