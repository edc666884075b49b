package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/list"
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
Digits; LlamaTokenizer). BPE is decoded without clean_up_tokenization_spaces. Without tokenizer.json the folder needs
vocab.json and merges.txt, with the rules of Qwen2, GPT-2 or CLIP.

Chat templates give what transformers gives for system, user and assistant turns. What the Jinja library lacks is
refused when the folder is opened. The day is always 26 July 2024 (strftime_now): a prompt does not change with the
clock.
`

// TestFolderKeysPageIsCurrent: the page lists what becomes of every key of a model folder's files.
func TestFolderKeysPageIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Keys of a model folder\n\n" + strings.Replace(generated, "the option structs", "the tables of keys in selector/", 1) +
		"What becomes of every key of the JSON files in a Hugging Face folder, as transformers 5 knows them. `make test-peers` compares\n" +
		"the lists with transformers' classes, so that a new key is noticed. A key of neither list is one that transformers does not\n" +
		"have either, and is passed over. Dropout is among what has no effect: no model is trained with its own. What tables of one kind\n" +
		"say alike stands once, under *Every …*; the tables behind it have the rest.\n\n" +
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
	var configs []hffolder.Keys
	alike := map[string][]hffolder.Keys{}
	for _, kind := range kinds {
		for _, k := range kind.keys {
			alike[family(k)] = append(alike[family(k)], k)
			if strings.HasSuffix(k.Class, "Config") && k.Class != "GenerationConfig" {
				configs = append(configs, k)
			}
		}
	}
	n := 0
	base := common(configs)
	b.WriteString("\n## Every config.json and its parts\n\n")
	write(&b, base)
	said := map[string][3][]string{}
	for _, kind := range kinds {
		fmt.Fprintf(&b, "\n## %s\n", kind.name)
		for _, k := range kind.keys {
			name, above := family(k), [3][]string{}
			if slices.ContainsFunc(configs, func(o hffolder.Keys) bool { return o.Of == k.Of }) {
				above = base
			}
			if _, known := said[name]; name != "" && !known {
				said[name] = common(alike[name])
				fmt.Fprintf(&b, "\n**Every %s**\n\n", name)
				write(&b, without(said[name], above))
			}
			fmt.Fprintf(&b, "\n**%s** (%s)\n\n", k.Of, k.Class)
			write(&b, without(without(becomes(k), above), said[name]))
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

// family names the tables that share most of their keys, "" one that stands alone.
func family(k hffolder.Keys) string {
	switch {
	case k.Class == "GenerationConfig", strings.HasPrefix(k.Of, "vision_config of"):
		return k.Of
	case strings.Contains(k.Of, "model_type"):
		return "config.json, or its text_config, of a text model"
	case k.Class == "T5Config" || k.Class == "BartConfig":
		return "config.json of T5 and BART"
	}
	return ""
}

// becomes lists the keys that are read, without effect and refused.
func becomes(k hffolder.Keys) [3][]string {
	var wants []string
	for key, of := range k.Want {
		if len(of) > 0 {
			wants = append(wants, key+" (but for "+strings.Join(of, ", ")+")")
		} else {
			wants = append(wants, key+" (any value)")
		}
	}
	return [3][]string{k.Used, k.Idle, wants}
}

// common lists what becomes of keys in all of the tables alike.
func common(tables []hffolder.Keys) (all [3][]string) {
	for i, of := range becomes(tables[0]) {
		all[i] = list.Filter(of, func(key string) bool {
			return !slices.ContainsFunc(tables, func(o hffolder.Keys) bool { return !slices.Contains(becomes(o)[i], key) })
		})
	}
	return all
}

// without leaves out of keys what is said already.
func without(keys, said [3][]string) [3][]string {
	for i := range keys {
		keys[i] = list.Filter(keys[i], func(key string) bool { return !slices.Contains(said[i], key) })
	}
	return keys
}

func write(b *strings.Builder, keys [3][]string) {
	for i, what := range []string{"read", "without effect", "refused"} {
		if len(keys[i]) > 0 {
			fmt.Fprintf(b, "- %s: %s\n", what, words(keys[i]))
		}
	}
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
