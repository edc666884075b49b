package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/testkit/golden"
	"fulcrum/selector/clip"
	"fulcrum/selector/seq2seq"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
)

// tokenizers is what the page says of the files that are no tables of keys.
const tokenizers = `
## Tokenizer and chat template

| Rules of tokenizer.json | Models |
|---|---|
| BPE of bytes, the patterns of Qwen2, Llama 3, GPT-2 and CLIP | Qwen2 to Qwen3, Llama 3.x, SmolLM3, GPT-2, BART, CLIP |
| BPE of bytes after Digits, each one alone | SmolLM2. Bytes that the vocabulary lacks are left out, as by the tokenizers library |
| BPE of characters with byte_fallback, spaces marked by Prepend and Replace or by Metaspace | Llama 2, Mistral 7B v0.1 to v0.3 |
| Unigram with Metaspace | T5 |

Any other rule is refused by its name: Mistral's Tekken, for one. tokenizer.json decides, also where transformers 5
puts rules of its own in its place for the class that tokenizer_config.json names (GPT2Tokenizer: a SmolLM2 loses
Digits; LlamaTokenizer). BPE is decoded without clean_up_tokenization_spaces, as in transformers 5. Without
tokenizer.json the folder needs vocab.json and merges.txt, with the rules of Qwen2, GPT-2 or CLIP.

Chat templates give what transformers gives for system, user and assistant turns: those of Qwen2.5 to Qwen3, SmolLM2,
SmolLM3, Llama 2 to 3.2 and Mistral are compared in the peers' tests. What the Jinja library lacks is refused when the
folder is opened. The day is always 26 July 2024 (strftime_now), which Llama 3.x writes where it knows none: a prompt
does not change with the clock.
`

// TestFolderKeysPageIsCurrent: the page lists what becomes of every key of a model folder's files.
func TestFolderKeysPageIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Keys of a model folder\n\n" + strings.Replace(generated, "the option structs", "the tables of keys in selector/", 1) +
		"What becomes of every key of the JSON files in a Hugging Face folder, as transformers 5 knows them. `make test-peers` compares\n" +
		"the lists with transformers' classes, so that a new key is noticed. A key of neither list is one that transformers does not\n" +
		"have either, and is passed over. Dropout is among what has no effect: no model is trained with its own.\n\n" +
		"A key of generation_config.json that is refused ends `task=generate`, which says what to add: `generate.without=[num_beams]`\n" +
		"goes on without it. Training draws as `vl.generation` and `seq2seq.generation` say, and names in a warning what the folder\n" +
		"asks for beside them. Without generation_config.json the keys of config.json count, as in transformers.\n" + tokenizers)
	kinds := []struct {
		name string
		keys []hffolder.Keys
	}{
		{"Qwen2.5-VL and text models", append(vl.Keys(), pixels.ImageKeys(), pixels.VideoKeys())},
		{"T5 and BART", seq2seq.Keys()},
		{"CLIP", clip.Keys()},
	}
	n := 0
	for _, kind := range kinds {
		fmt.Fprintf(&b, "\n## %s\n", kind.name)
		for _, k := range kind.keys {
			fmt.Fprintf(&b, "\n**%s** (%s)\n\n", k.Of, k.Class)
			fmt.Fprintf(&b, "- read: %s\n- without effect: %s\n", words(k.Used), words(k.Idle))
			var wants []string
			for _, key := range slices.Sorted(maps.Keys(k.Want)) {
				want := " (any value)"
				if of := k.Want[key]; len(of) > 0 {
					want = " (but for " + strings.Join(of, ", ") + ")"
				}
				wants = append(wants, key+want)
			}
			fmt.Fprintf(&b, "- refused: %s\n", words(wants))
			for _, key := range slices.Sorted(maps.Keys(k.Alias)) {
				fmt.Fprintf(&b, "- refused where it is another than %s: %s\n", k.Alias[key], key)
			}
			n += len(k.Used) + len(k.Idle) + len(k.Want) + len(k.Alias)
		}
	}
	if n < 300 {
		t.Errorf("%d keys, want 300 at least", n)
	}
	golden.File(t, docsPath("model_folders.md"), []byte(b.String()))
}

// words lists names in alphabetical order, wrapped.
func words(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	var b strings.Builder
	width := 20
	for i, name := range names {
		if i > 0 {
			b.WriteString(",")
			if width += len(name) + 2; width > 120 {
				b.WriteString("\n  ")
				width = len(name) + 2
			} else {
				b.WriteString(" ")
			}
		}
		b.WriteString(name)
	}
	return b.String()
}
